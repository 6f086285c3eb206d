// The kernels the tests launch on a real driver, as PTX for the driver's own compiler: no nvcc is needed.
// ISA 6.4 for sm_75, the oldest that a CUDA 13 driver takes.
#pragma once

namespace apportion::conformance {

// touch(p): stores 0x5a at p.
// spin(p, n): n rounds, each of which adds 1 to the word at p + 8 * (round % 1024). A round takes about a
// microsecond, so n bounds how long it runs.
inline constexpr char kPtx[] = R"(.version 6.4
.target sm_75
.address_size 64
.visible .entry touch(.param .u64 p)
{
  .reg .u64 %rd<3>;
  .reg .u32 %r<2>;
  ld.param.u64 %rd1, [p];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, 90;
  st.global.u8 [%rd2], %r1;
  ret;
}
.visible .entry spin(.param .u64 p, .param .u64 n)
{
  .reg .u64 %rd<8>;
  .reg .pred %q<2>;
  ld.param.u64 %rd7, [p];
  cvta.to.global.u64 %rd1, %rd7;
  ld.param.u64 %rd2, [n];
  mov.u64 %rd3, 0;
ROUND:
  setp.ge.u64 %q1, %rd3, %rd2;
  @%q1 bra DONE;
  and.b64 %rd4, %rd3, 1023;
  shl.b64 %rd4, %rd4, 3;
  add.u64 %rd5, %rd1, %rd4;
  ld.volatile.global.u64 %rd6, [%rd5];
  add.u64 %rd6, %rd6, 1;
  st.volatile.global.u64 [%rd5], %rd6;
  add.u64 %rd3, %rd3, 1;
  bra ROUND;
DONE:
  ret;
}
)";

}  // namespace apportion::conformance
