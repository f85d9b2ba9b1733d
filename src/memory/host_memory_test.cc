#include "memory/host_memory.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/units.h"

namespace hufu::memory {
namespace {

HostMemory& host() { return HostMemory::of_process(); }

// A registry lives for as long as the books that tell it of ranges.
AddressRegistry& attached_registry() {
  static auto& all = *new std::deque<AddressRegistry>();
  AddressRegistry& registry = all.emplace_back();
  host().attach(registry);
  return registry;
}

// The exit status of a forked child that runs `body`; -1 when a signal ended it.
template <class Body>
int status_of_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(20);  // Ends a child that is stuck, and fails the test.
    ::_exit(body());
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(HostMemory, IsAlignedZeroAndItsSizeRoundedTo32) {
  const AddressRegistry& registry = attached_registry();
  const auto made = host().allocate(100);
  ASSERT_TRUE(made) << made.error().what();
  const auto address = reinterpret_cast<std::uintptr_t>(*made);
  EXPECT_TRUE(is_aligned(address, 64));
  const auto region = registry.find(address + 127);
  ASSERT_TRUE(region);
  EXPECT_EQ(region->kind, RegionKind::kHost);
  EXPECT_EQ(region->reported, 128U);
  EXPECT_FALSE(registry.find(address + 128));
  EXPECT_EQ(static_cast<const char*>(*made)[127], 0);
  EXPECT_TRUE(host().retire(*made));
  EXPECT_FALSE(registry.find(address));
}

TEST(HostMemory, EndsOnceAndOnlyByItsStart) {
  const auto made = host().allocate(4096);
  ASSERT_TRUE(made);
  const auto inside = host().retire(static_cast<const char*>(*made) + 64);
  ASSERT_FALSE(inside);
  EXPECT_EQ(inside.error().code, Errc::kInvalidValue);
  EXPECT_TRUE(host().retire(*made));
  EXPECT_FALSE(host().retire(*made));
  int local = 0;
  EXPECT_FALSE(host().retire(&local));
}

TEST(HostMemory, MoreThanTheMachineHasIsOutOfMemory) {
  const auto refused = host().allocate(std::uint64_t{1} << 45U);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kOutOfMemory);
  EXPECT_FALSE(host().allocate(std::uint64_t{1} << 63U));
  EXPECT_FALSE(host().allocate(~std::uint64_t{0}));
}

TEST(HostMemory, AChildKeepsItsOwnCopyAndCanFreeIt) {
  const auto made = host().allocate(8192);
  ASSERT_TRUE(made);
  auto* bytes = static_cast<char*>(*made);
  std::memset(bytes, 7, 8192);
  EXPECT_EQ(status_of_child([&] {
              if (bytes[8191] != 7) return 1;
              std::memset(bytes, 9, 8192);
              const AddressRegistry& own = attached_registry();
              if (!own.find(reinterpret_cast<std::uintptr_t>(bytes))) return 2;
              if (!host().retire(bytes)) return 3;
              if (own.find(reinterpret_cast<std::uintptr_t>(bytes))) return 4;
              const auto fresh = host().allocate(64);
              return fresh && host().retire(*fresh) ? 0 : 5;
            }),
            0);
  EXPECT_EQ(bytes[0], 7) << "the child's writes are its own";
  EXPECT_TRUE(host().retire(bytes));
}

TEST(HostMemory, AChildDoesNotTouchTheParentsRegistry) {
  const AddressRegistry& registry = attached_registry();
  const auto made = host().allocate(64);
  ASSERT_TRUE(made);
  EXPECT_EQ(status_of_child([&] {
              if (!host().retire(*made)) return 1;
              return registry.find(reinterpret_cast<std::uintptr_t>(*made)) ? 0 : 2;
            }),
            0);
  EXPECT_TRUE(host().retire(*made));
}

#ifndef __SANITIZE_THREAD__  // It knows no fork of a process with threads.
TEST(HostMemory, ChildrenForkedWhileThreadsAllocateAreNotStuck) {
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&over] {
      while (!over) {
        const auto made = host().allocate(64);
        if (made) static_cast<void>(host().retire(*made).has_value());
      }
    });
  }
  int failures = 0;
  for (int round = 0; round < 200; ++round) {
    failures += status_of_child([] {
                  const auto made = host().allocate(64);
                  return made && host().retire(*made) ? 0 : 1;
                }) == 0
                    ? 0
                    : 1;
  }
  over = true;
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(failures, 0);
}
#endif

}  // namespace
}  // namespace hufu::memory
