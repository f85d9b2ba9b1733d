// main() of every process test: a test run, or one of its helpers.

#include <gtest/gtest.h>

#include "support/helper.h"

int main(int argc, char** argv) {
  if (const auto status = hufu::test::run_as_helper(argc, argv)) return *status;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
