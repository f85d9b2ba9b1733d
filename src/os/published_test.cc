#include "os/published.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include <gtest/gtest.h>

#include "os/memfd.h"

namespace hufu::os {
namespace {

TEST(Published, AReaderSeesWhatTheWriterSays) {
  const auto memory = PublishedMemory::make("test", 64);
  ASSERT_TRUE(memory) << memory.error().what();
  const auto reader = memory->reader();
  ASSERT_TRUE(reader);
  const auto view = PublishedView::map(reader->get(), 64);
  ASSERT_TRUE(view) << view.error().what();
  EXPECT_EQ(view->word(3), 0U);
  memory->word(3).store(42, std::memory_order_release);
  EXPECT_EQ(view->word(3), 42U);
}

TEST(Published, AReaderCannotBecomeAWriter) {
  const auto memory = PublishedMemory::make("test", 64);
  ASSERT_TRUE(memory);
  const auto reader = memory->reader();
  ASSERT_TRUE(reader);
  const auto writer = reopen(reader->get(), Access::kReadWrite);
  if (!writer) return;
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writer->get(), 0),
            MAP_FAILED);
  EXPECT_EQ(::pwrite(writer->get(), "x", 1, 0), -1);
}

TEST(Published, AFileThatAnybodyCouldWriteIsNotBelieved) {
  const auto file = make_memfd("test", 4096, Backing::kShmem);
  ASSERT_TRUE(file);
  EXPECT_FALSE(PublishedView::map(file->get(), 64));
}

// The child claims the word and is killed; nobody runs a line of code for it.
TEST(LifeWord, SaysThatItsOwnerWasKilled) {
  auto memory = PublishedMemory::make("test", 64);
  ASSERT_TRUE(memory);
  const auto reader = memory->reader();
  const auto view = PublishedView::map(reader->get(), 64);
  ASSERT_TRUE(view);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    memory->claim_life_word();
    (void)!::write(ends[1], "x", 1);
    for (;;)
      ::pause();
  }
  char claimed = 0;
  ASSERT_EQ(::read(ends[0], &claimed, 1), 1);
  EXPECT_FALSE(view->writer_ended());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(view->writer_ended());
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace hufu::os
