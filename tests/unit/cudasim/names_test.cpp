// The exported symbols and both forms of cuGetProcAddress, asked of the built library as a program asks.
#include "tests/unit/cudasim/simulator.hpp"

#include <fstream>
#include <sstream>

#undef cuGetProcAddress

namespace {

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t);
using GetProcAddressV2 = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

template <typename Function>
Function symbol(const char* name) {
  return cudasim::testing::driver_symbol<Function>(name);
}
void* raw(const std::string& name) {
  return dlsym(cudasim::testing::driver_library(), name.c_str());
}

struct Answer {
  CUresult result;
  CUdriverProcAddressQueryResult status;
  void* address;
};
Answer ask(const char* name, int version, cuuint64_t flags) {
  Answer answer{CUDA_ERROR_UNKNOWN, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, nullptr};
  answer.result =
      symbol<GetProcAddressV2>("cuGetProcAddress_v2")(name, &answer.address, version, flags, &answer.status);
  return answer;
}

}  // namespace

TEST_CASE("every one of the 637 driver symbols is exported") {
  std::ifstream list(APPORTION_TEST_DATA "/driver_symbols_13.txt");
  int count = 0;
  for (std::string name; std::getline(list, name); ++count) {
    INFO(name);
    CHECK(raw(name) != nullptr);
  }
  CHECK(count == 637);
}

TEST_CASE("every query of the 13.0 runtime is answered with an exported symbol of that base name") {
  std::ifstream list(APPORTION_TEST_DATA "/cudart13_queries.txt");
  int count = 0;
  for (std::string line; std::getline(list, line); ++count) {
    const auto space = line.find(' ');
    REQUIRE(space != std::string::npos);
    const std::string name = line.substr(0, space);
    int version = 0;
    cuuint64_t flags = 0;
    std::istringstream(line.substr(space)) >> version >> flags;
    INFO(line);
    const Answer answer = ask(name.c_str(), version, flags);
    CHECK(answer.result == CUDA_SUCCESS);
    if (name.empty()) {
      CHECK(answer.address == nullptr);
      CHECK(answer.status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
      continue;
    }
    CHECK(answer.status == CU_GET_PROC_ADDRESS_SUCCESS);
    Dl_info info{};
    REQUIRE(answer.address != nullptr);
    REQUIRE(dladdr(answer.address, &info) != 0);
    // Which symbol of the base name it must be is proven against the typedefs at compile time
    // (names_abi_test.cpp).
    REQUIRE(info.dli_sname != nullptr);
    const std::string rest = std::string(info.dli_sname).substr(name.size());
    CHECK(std::string(info.dli_sname).starts_with(name));
    CHECK((rest.empty() || rest[0] == '_'));
    const bool per_thread = rest.ends_with("_ptds") || rest.ends_with("_ptsz");
    CHECK(per_thread == (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
  }
  CHECK(count == 440);
}

TEST_CASE("cuGetProcAddress gives each version its own ABI") {
  struct Expected {
    const char* name;
    int version;
    cuuint64_t flags;
    const char* symbol;
  };
  const Expected expected[] = {
      {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
      {"cuMemAlloc", 13000, 0, "cuMemAlloc_v2"},
      {"cuMemAlloc", 3010, 0, "cuMemAlloc"},
      {"cuCtxCreate", 3020, 0, "cuCtxCreate_v2"},
      {"cuCtxCreate", 11040, 0, "cuCtxCreate_v3"},
      {"cuCtxCreate", 13000, 0, "cuCtxCreate_v4"},
      {"cuCtxGetDevice", 2000, 0, "cuCtxGetDevice"},
      {"cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2"},
      {"cuIpcOpenMemHandle", 4010, 0, "cuIpcOpenMemHandle"},
      {"cuIpcOpenMemHandle", 11000, 0, "cuIpcOpenMemHandle_v2"},
      {"cuDeviceGetUuid", 9020, 0, "cuDeviceGetUuid"},
      {"cuDeviceGetUuid", 12000, 0, "cuDeviceGetUuid_v2"},
      {"cuMemcpyBatchAsync", 12080, 0, "cuMemcpyBatchAsync"},
      {"cuMemcpyBatchAsync", 12080, 2, "cuMemcpyBatchAsync_ptsz"},
      {"cuMemcpyBatchAsync", 13000, 2, "cuMemcpyBatchAsync_v2_ptsz"},
      {"cuMemPrefetchAsync", 8000, 2, "cuMemPrefetchAsync_ptsz"},
      {"cuMemPrefetchAsync", 12020, 0, "cuMemPrefetchAsync_v2"},
      {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
      {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
      {"cuMemcpyHtoD", 3020, 0, "cuMemcpyHtoD_v2"},
      {"cuMemcpyHtoD", 7000, 1, "cuMemcpyHtoD_v2"},
      {"cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds"},
      {"cuMemcpyHtoD", 3020, 2, "cuMemcpyHtoD_v2"},  // no per-thread form that old: the legacy one stands in
      {"cuMemCreate", 10020, 2, "cuMemCreate"},      // none at all
      {"cuStreamGetCaptureInfo", 12030, 2, "cuStreamGetCaptureInfo_v3_ptsz"},
      {"cuStreamGetCaptureInfo", 11030, 0, "cuStreamGetCaptureInfo_v2"},
  };
  for (const Expected& e : expected) {
    INFO(e.name << ' ' << e.version << ' ' << e.flags << " -> " << e.symbol);
    const Answer answer = ask(e.name, e.version, e.flags);
    CHECK(answer.result == CUDA_SUCCESS);
    CHECK(answer.address == raw(e.symbol));
    void* old_form = nullptr;
    CHECK(symbol<GetProcAddress>("cuGetProcAddress")(e.name, &old_form, e.version, e.flags) == CUDA_SUCCESS);
    CHECK(old_form == answer.address);
  }
}

TEST_CASE("cuGetProcAddress says why it has no answer, and takes a null status") {
  auto get = symbol<GetProcAddressV2>("cuGetProcAddress_v2");
  void* address = &address;
  CHECK(get("cuMemAlloc", &address, 3020, 0, nullptr) == CUDA_SUCCESS);
  CHECK(address == raw("cuMemAlloc_v2"));
  CHECK(get("", &address, 0, 0, nullptr) == CUDA_SUCCESS);
  CHECK(address == nullptr);

  CHECK(ask("cuNoSuchFunction", 13000, 0).status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(ask("cuMem", 13000, 0).status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);  // a prefix is not a name
  CHECK(ask("cuMemAlloc_v2", 13000, 0).status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(ask("cuMemCreate", 10010, 0).status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  CHECK(ask("cuMemCreate", 10010, 0).address == nullptr);

  CHECK(get(nullptr, &address, 13000, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(get("cuInit", nullptr, 13000, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(ask("cuInit", CUDA_VERSION + 10, 0).result == CUDA_ERROR_INVALID_VALUE);  // newer than the driver
  CHECK(ask("cuInit", 13000, 3).result == CUDA_ERROR_INVALID_VALUE);
  CHECK(ask("cuInit", 13000, 4).result == CUDA_ERROR_INVALID_VALUE);
  CHECK(symbol<GetProcAddress>("cuGetProcAddress")("cuNoSuchFunction", &address, 13000, 0) ==
        CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("cuGetExportTable has no table, whichever is asked for") {
  auto get = symbol<CUresult (*)(const void**, const CUuuid*)>("cuGetExportTable");
  const void* table = &table;
  const CUuuid id{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
  CHECK(get(&table, &id) == CUDA_ERROR_NOT_FOUND);
  CHECK(table == nullptr);
}

TEST_CASE("a function that is not simulated answers NOT_SUPPORTED") {
  CHECK(symbol<int (*)()>("cuTexRefGetArray")() == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(symbol<int (*)()>("cuGLInit")() == CUDA_ERROR_NOT_SUPPORTED);
}
