#include "config/find.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/unit/config/support.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "apportion-find-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = path_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream{path} << text;
    return path.string();
  }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("the config is looked for by flag, variable, user folder and system folder, in this order") {
  const TemporaryFolder folder;
  ConfigSearch search;
  search.xdg_config_home = folder / "xdg";
  search.home = folder / "home";
  search.system_path = folder.write("etc/apportion.toml", "");
  CHECK(find_config(search).value() == search.system_path);

  const std::string xdg = folder.write("xdg/apportion/apportion.toml", "");
  CHECK(find_config(search).value() == xdg);

  search.xdg_config_home.reset();
  CHECK(find_config(search).value() == search.system_path);
  const std::string home = folder.write("home/.config/apportion/apportion.toml", "");
  CHECK(find_config(search).value() == home);
  search.xdg_config_home = "relative";  // ignored, as the XDG rules ask
  CHECK(find_config(search).value() == home);

  search.apportion_config = folder.write("variable.toml", "");
  CHECK(find_config(search).value() == *search.apportion_config);
  search.flag = folder.write("flag.toml", "");
  CHECK(find_config(search).value() == *search.flag);
}

TEST_CASE("C19: a config that was named and is missing never falls back to another one") {
  const TemporaryFolder folder;
  ConfigSearch search;
  search.system_path = folder.write("etc/apportion.toml", "");
  search.apportion_config = folder / "missing.toml";
  REQUIRE_FALSE(find_config(search).ok());
  search.apportion_config = "";  // set and empty is unset
  CHECK(find_config(search).ok());
  search.flag = "";  // a flag that was given is never ignored
  REQUIRE_FALSE(find_config(search).ok());
}

TEST_CASE("a missing config lists every path tried, in one line") {
  const TemporaryFolder folder;
  ConfigSearch search;
  search.home = folder / "home";
  search.system_path = folder / "etc/apportion.toml";
  const Result<std::string> found = find_config(search);
  REQUIRE_FALSE(found.ok());
  CHECK(found.error().code == Errc::not_found);
  const std::string& message = found.error().message;
  INFO(message);
  CHECK(message.find(folder / "home/.config/apportion/apportion.toml") != std::string::npos);
  CHECK(message.find(search.system_path) != std::string::npos);
  CHECK(message.find("--config FILE") != std::string::npos);
  CHECK(message.find('\n') == std::string::npos);
}

TEST_CASE("a missing config's error names the option as this command spells it") {
  const TemporaryFolder folder;
  ConfigSearch search;
  search.flag = folder / "none.toml";
  search.flag_usage = "apportion check FILE";
  CHECK(find_config(search).error().message ==
        "no config found; tried " + *search.flag +
            " (apportion check FILE); write one there, or name one with apportion check FILE or "
            "APPORTION_CONFIG");
}

TEST_CASE("what is no readable config file is refused with its path") {
  const TemporaryFolder folder;
  const Result<Config> missing = read_config(folder / "missing.toml", test_names());
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == Errc::not_found);
  CHECK(missing.error().message.find(folder / "missing.toml") != std::string::npos);

  CHECK_FALSE(read_config(folder / ".", test_names()).ok());
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const Result<Config> from_pipe = read_config(pipe, test_names());
  REQUIRE_FALSE(from_pipe.ok());
  CHECK(from_pipe.error().message.find("not a regular file") != std::string::npos);

  const std::string large = folder.write("large.toml", std::string(kMaxConfigBytes + 1, '\n'));
  CHECK(read_config(large, test_names()).error().message.find("larger than 1 MiB") != std::string::npos);

  const std::string bad = folder.write("bad.toml", "[broker]\npool = 3\n");
  CHECK(read_config(bad, test_names()).error().message.find(bad + ":2: broker.pool: \"3\"") == 0);
  const std::string good = folder.write("good.toml", "[jobs.a]\n");
  CHECK(read_config(good, test_names()).value().jobs.size() == 1);
}
