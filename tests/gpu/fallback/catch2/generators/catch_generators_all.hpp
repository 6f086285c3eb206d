// Empty: the tests that run on a bare machine use no generators.
#pragma once
