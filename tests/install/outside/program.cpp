// The same in C++.
#include <apportion/apportion.hpp>
#include <exception>
#include <iostream>

int main() {
  try {
    apportion::Session session;
    const apportion_info info = session.info();
    const apportion::Block block = session.allocate(info.total_bytes / 2);
    std::cout << apportion_version() << ' ' << info.job << ' ' << (info.simulated != 0 ? "simulated" : "real")
              << ' ' << info.total_bytes << '\n';
    return block ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
