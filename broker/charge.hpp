// What was taken from a job's quota, as an object: it remembers the account and the bytes and gives exactly
// that back, once, whatever path ends it.
//
// Promises: an account never goes below zero or above 2^64 (Bytes aborts). Never: copied.
#pragma once

#include <utility>

#include "shm/bytes.hpp"

namespace apportion {

// The u of one job.
class Account {
 public:
  [[nodiscard]] Bytes charged() const { return charged_; }

 private:
  friend class Charge;
  Bytes charged_{};
};

class [[nodiscard]] Charge {
 public:
  Charge() = default;
  Charge(Account& account, Bytes bytes) : account_(&account), bytes_(bytes) { account.charged_ += bytes; }
  Charge(Charge&& other) noexcept
      : account_(std::exchange(other.account_, nullptr)), bytes_(std::exchange(other.bytes_, Bytes{})) {}
  Charge& operator=(Charge&& other) noexcept {
    if (this != &other) {
      give_back();
      account_ = std::exchange(other.account_, nullptr);
      bytes_ = std::exchange(other.bytes_, Bytes{});
    }
    return *this;
  }
  ~Charge() { give_back(); }

  void give_back() {
    if (account_ != nullptr) account_->charged_ -= bytes_;
    account_ = nullptr;
    bytes_ = {};
  }
  [[nodiscard]] Bytes bytes() const { return bytes_; }
  [[nodiscard]] bool to(const Account& account) const { return account_ == &account; }
  [[nodiscard]] explicit operator bool() const { return account_ != nullptr; }

 private:
  Account* account_ = nullptr;
  Bytes bytes_{};
};

}  // namespace apportion
