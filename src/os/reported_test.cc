#include "os/reported.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include <gtest/gtest.h>

#include "os/memfd.h"

namespace hufu::os {
namespace {

TEST(Reported, IsWhatTheWriterWroteLast) {
  const auto view = ReportedView::make("test", 4096);
  ASSERT_TRUE(view) << view.error().what();
  const auto writer = ReportedMemory::map(view->writer()->get(), 4096);
  ASSERT_TRUE(writer) << writer.error().what();
  EXPECT_EQ(writer->words(), 512U);
  EXPECT_EQ(view->word(511), 0U);
  writer->word(511).store(7, std::memory_order_relaxed);
  EXPECT_EQ(view->word(511), 7U);
}

TEST(Reported, CannotBeTakenAwayFromItsReader) {
  const auto view = ReportedView::make("test", 4096);
  ASSERT_TRUE(view);
  const auto writer = view->writer();
  ASSERT_TRUE(writer);
  EXPECT_EQ(::ftruncate(writer->get(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fcntl(writer->get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
}

TEST(Reported, IsNotWrittenWhereItsSizeIsNotSealed) {
  const UniqueFd open_file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open_file.get(), 4096), 0);
  EXPECT_FALSE(ReportedMemory::map(open_file.get(), 4096));
  const auto small = ReportedView::make("test", 4096);
  ASSERT_TRUE(small);
  EXPECT_FALSE(ReportedMemory::map(small->writer()->get(), 8192));
}

}  // namespace
}  // namespace hufu::os
