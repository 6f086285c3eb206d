// Approx of Catch2 2.13 and 3.x, apart from tests/support/catch.hpp because few tests compare fractions.
#pragma once

#if __has_include(<catch2/catch_approx.hpp>)
#include <catch2/catch_approx.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
