// The table and its errors, over the simulated driver.
#include "gpu/driver_table.hpp"

#include "gpu/context.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/gpu/simulated.hpp"

using namespace apportion;
using apportion::testing::FailingCall;
using apportion::testing::Simulated;

TEST_CASE("every function of the table is there, those that may be missing too") {
  const DriverTable& driver = Simulated::instance().device().driver();
#define NEED(member, symbol, type) CHECK(driver.member == reinterpret_cast<type>(driver.find(symbol)));
#define MAY(member, symbol, type) \
  NEED(member, symbol, type)      \
  CHECK(driver.member != nullptr);
#include "gpu/driver_functions.def"
#undef NEED
#undef MAY
}

TEST_CASE("an error names the call, the driver's name and number, and says out of memory as itself") {
  const DriverTable& driver = Simulated::instance().device().driver();
  const Error full = driver_error(driver, CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate");
  CHECK(full.code == Errc::out_of_memory);
  CHECK(full.message.starts_with("cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2)"));
  CHECK(driver_error(driver, CUDA_ERROR_NOT_PERMITTED, "cuMemCreate").code == Errc::denied);
  CHECK(driver_error(driver, CUDA_ERROR_INVALID_VALUE, "cuMemMap").code == Errc::driver);
  const Error unknown = driver_error(driver, static_cast<CUresult>(77777), "cuMemMap");
  CHECK(unknown.message.find("77777") != std::string::npos);
  CHECK(driver_status(driver, CUDA_SUCCESS, "cuMemMap").ok());
}

TEST_CASE("the primary context is current while it is retained, and gone after") {
  Simulated& sim = Simulated::instance();
  const DriverTable& driver = sim.device().driver();
  const auto before = sim.left();
  CUcontext current = nullptr;
  {
    auto context = PrimaryContext::retain(sim.device());
    REQUIRE(context.ok());
    REQUIRE(driver.ctx_get_current(&current) == CUDA_SUCCESS);
    CHECK(current == context->get());
    CHECK(sim.left().used > before.used);  // a context costs memory
  }
  REQUIRE(driver.ctx_get_current(&current) == CUDA_SUCCESS);
  CHECK(current == nullptr);
  CHECK(sim.left() == before);
}

TEST_CASE("F33: a context that cannot be made current is not kept") {
  Simulated& sim = Simulated::instance();
  const auto before = sim.left();
  for (const char* function : {"cuDevicePrimaryCtxRetain", "cuCtxPushCurrent"}) {
    const FailingCall failing(function, CUDA_ERROR_UNKNOWN);
    CHECK_FALSE(PrimaryContext::retain(sim.device()).ok());
    CHECK(failing.met());
    CHECK(sim.left() == before);
  }
}
