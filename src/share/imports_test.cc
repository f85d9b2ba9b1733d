#include "share/imports.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "os/memfd.h"
#include "share/fake_broker.h"

namespace hufu::share {
namespace {

constexpr std::uint64_t kPage = bytes_of(PageSize::k4KiB);
constexpr const char* kKey = "KKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKK";
constexpr const char* kOther = "OOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOOO";

UniqueFd memory(std::uint64_t size) {
  auto fd = os::make_memfd("test", size, os::Backing::kShmem);
  EXPECT_TRUE(fd) << fd.error().what();
  return std::move(*fd);
}

wire::ImportReply grant_of(std::uint64_t share, Access access = Access::kReadWrite) {
  wire::ImportReply reply{};
  reply.share = share;
  reply.size = kPage;
  reply.reported_size = kPage - 96;
  reply.page = kPage;
  reply.access = static_cast<std::uint32_t>(access);
  reply.device = 3;
  reply.exporter_pid = 77;
  reply.backing = wire::Backing::kShmem;
  reply.slot = static_cast<std::uint32_t>(share);
  reply.status = wire::status_word(1, wire::StatusState::kLive);
  return reply;
}

void answer_import(FakeBroker& broker, const wire::ImportReply& reply, const UniqueFd& file) {
  auto fresh = os::reopen(file.get(), static_cast<Access>(reply.access));
  ASSERT_TRUE(fresh) << fresh.error().what();
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(*fresh));
  broker.set_live(reply);
  broker.answer<wire::Import>(broker.expect<wire::Import>(), reply, fds);
}

void expect_close(FakeBroker& broker, std::uint64_t share) {
  const auto request = broker.expect<wire::Close>();
  const auto* close = std::get_if<wire::Close>(&request.body);
  ASSERT_NE(close, nullptr);
  EXPECT_EQ(close->share, share);
}

class AnImporter : public ::testing::Test {
 protected:
  UniqueFd file_ = memory(2 * kPage);
  FakeBroker broker_;
  Client client_{broker_.address()};
  Imports imports_{client_};
};

class ImportedOnce : public AnImporter {};

TEST_F(ImportedOnce, IsTheExportersMemoryAndSaysWhatItIs) {
  auto reply = grant_of(5);
  reply.offset = kPage;
  ASSERT_EQ(::pwrite(file_.get(), "hello", 5, static_cast<off_t>(kPage)), 5);
  broker_.play([&, reply](FakeBroker& it) {
    it.open_session();
    answer_import(it, reply, file_);
  });
  const auto import = imports_.open(kKey, 0);
  ASSERT_TRUE(import) << import.error().what();
  EXPECT_EQ(std::memcmp(import->base, "hello", 5), 0);
  EXPECT_EQ(import->size, kPage);
  EXPECT_EQ(import->reported_size, kPage - 96);
  EXPECT_EQ(import->device, 3U);
  EXPECT_EQ(import->exporter_pid, 77);
  EXPECT_EQ(import->share, 5U);
  import->base[0] = std::byte{'j'};
  char back = 0;
  ASSERT_EQ(::pread(file_.get(), &back, 1, static_cast<off_t>(kPage)), 1);
  EXPECT_EQ(back, 'j');
}

TEST_F(ImportedOnce, IsFoundByEachOfItsAddressesAndNoOther) {
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    answer_import(it, grant_of(5), file_);
  });
  const auto import = imports_.open(kKey, 0);
  ASSERT_TRUE(import);
  EXPECT_EQ(imports_.find(import->base)->share, 5U);
  EXPECT_EQ(imports_.find(import->base + kPage - 1)->share, 5U);
  EXPECT_FALSE(imports_.find(import->base + kPage).has_value());
  EXPECT_FALSE(imports_.find(import->base - 1).has_value());
  EXPECT_FALSE(imports_.find(nullptr).has_value());
}

TEST_F(ImportedOnce, AHugePageImportIsAlignedLikeOne) {
  auto reply = grant_of(5);
  reply.page = static_cast<std::uint32_t>(bytes_of(PageSize::k2MiB));
  broker_.play([&, reply](FakeBroker& it) {
    it.open_session();
    answer_import(it, reply, file_);
  });
  const auto import = imports_.open(kKey, 0);
  ASSERT_TRUE(import);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(import->base) % (2 * kMiB), 0U);
}

TEST_F(ImportedOnce, LeavesNoDescriptorBehind) {
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    answer_import(it, grant_of(5), file_);
  });
  ASSERT_TRUE(imports_.open(kKey, 0));
  broker_.finish();
  const auto mine = os::facts_of(file_.get());
  constexpr int kMany = 256;
  for (int fd = 0; fd < kMany; ++fd) {
    const auto facts = os::facts_of(fd);
    if (fd == file_.get() || !facts) continue;
    EXPECT_FALSE(facts->inode == mine->inode && facts->device == mine->device) << fd;
  }
}

TEST_F(AnImporter, OpensAKeyAgainAtTheSameAddressWithoutAsking) {
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    answer_import(it, grant_of(5), file_);
    expect_close(it, 5);
  });
  const auto first = imports_.open(kKey, 0);
  const auto second = imports_.open(kKey, 0);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->base, second->base);

  auto close = imports_.close(kKey);
  ASSERT_TRUE(close);
  EXPECT_FALSE(close->has_value()) << "one open is left";
  second->base[0] = std::byte{1};  // Still mapped.
  {
    const auto last = imports_.close(kKey);
    ASSERT_TRUE(last);
    ASSERT_TRUE(last->has_value());
    EXPECT_EQ((*last)->import().base, first->base);
    EXPECT_FALSE(imports_.find(first->base).has_value()) << "dead for new calls at once";
    second->base[0] = std::byte{2};  // Queued work may still use it.
  }
  std::byte seen{};
  const iovec into{.iov_base = &seen, .iov_len = 1};
  const iovec from{.iov_base = first->base, .iov_len = 1};
  EXPECT_EQ(::process_vm_readv(::getpid(), &into, 1, &from, 1, 0), -1) << "still readable";
  const auto third = imports_.close(kKey);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, Errc::kRefused);
  EXPECT_EQ(third.error().reason, Reason::kNotImported);
}

TEST_F(AnImporter, AsksAgainAfterTheLastClose) {
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    answer_import(it, grant_of(5), file_);
    expect_close(it, 5);
    answer_import(it, grant_of(5), file_);
  });
  ASSERT_TRUE(imports_.open(kKey, 0));
  ASSERT_TRUE(imports_.close(kKey));
  EXPECT_TRUE(imports_.open(kKey, 0));
}

TEST_F(AnImporter, KeepsKeysApart) {
  const UniqueFd other = memory(kPage);
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    answer_import(it, grant_of(5), file_);
    answer_import(it, grant_of(6), other);
    expect_close(it, 5);
  });
  const auto first = imports_.open(kKey, 0);
  const auto second = imports_.open(kOther, 0);
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->base, second->base);
  ASSERT_TRUE(imports_.close(kKey));
  EXPECT_FALSE(imports_.find(first->base).has_value());
  EXPECT_EQ(imports_.find(second->base)->share, 6U);
  broker_.finish();
}

TEST_F(AnImporter, CloseOfAKeyThatWasNeverOpenedIsRefusedWithoutTheKey) {
  const auto close = imports_.close(kKey);
  ASSERT_FALSE(close);
  EXPECT_EQ(close.error().reason, Reason::kNotImported);
  EXPECT_EQ(close.error().what().find("KKKK"), std::string_view::npos);
}

TEST_F(AnImporter, ARefusedOpenLeavesNothing) {
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    it.refuse<wire::Import>(it.expect<wire::Import>(), Reason::kNotListed);
    answer_import(it, grant_of(5), file_);
  });
  EXPECT_EQ(imports_.open(kKey, 0).error().reason, Reason::kNotListed);
  EXPECT_EQ(imports_.close(kKey).error().reason, Reason::kNotImported);
  EXPECT_TRUE(imports_.open(kKey, 0));
}

TEST_F(AnImporter, DoesNotWidenAnAccessThatItHolds) {
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    answer_import(it, grant_of(5, Access::kReadOnly), file_);
  });
  ASSERT_TRUE(imports_.open(kKey, static_cast<std::uint32_t>(Access::kReadOnly)));
  const auto wider = imports_.open(kKey, static_cast<std::uint32_t>(Access::kReadWrite));
  ASSERT_FALSE(wider);
  EXPECT_EQ(wider.error().reason, Reason::kReadOnlyExport);
  EXPECT_TRUE(imports_.open(kKey, 0));
}

TEST_F(AnImporter, AReadOnlyImportCannotBeMadeWritable) {
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    answer_import(it, grant_of(5, Access::kReadOnly), file_);
  });
  const auto import = imports_.open(kKey, 0);
  ASSERT_TRUE(import);
  EXPECT_EQ(import->access, Access::kReadOnly);
  EXPECT_EQ(::mprotect(import->base, kPage, PROT_READ | PROT_WRITE), -1);
}

TEST_F(AnImporter, ManyFirstOpensAreOneRequestAndOneMapping) {
  constexpr int kThreads = 8;
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    answer_import(it, grant_of(5), file_);
    expect_close(it, 5);  // And not another import before.
  });
  std::latch start(kThreads);
  std::array<std::byte*, kThreads> bases{};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      const auto import = imports_.open(kKey, 0);
      if (import) bases[static_cast<std::size_t>(i)] = import->base;
    });
  }
  for (auto& thread : threads)
    thread.join();
  for (const auto* base : bases) {
    EXPECT_NE(base, nullptr);
    EXPECT_EQ(base, bases[0]);
  }
  for (int i = 0; i < kThreads; ++i)
    EXPECT_TRUE(imports_.close(kKey));
  EXPECT_FALSE(imports_.close(kKey));
}

// Whoever opens during a last close gets a mapping that the broker counts: the CLOSE was sent
// first.
TEST_F(AnImporter, OpensAndLastClosesOfOneKeyNeverOverlap) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  std::atomic<int> imports = 0;
  std::atomic<int> closes = 0;
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    while (true) {
      const auto request = it.expect_one_of<wire::Import, wire::Close, wire::Bye>();
      if (request.kind() == wire::Kind::kImport) {
        EXPECT_EQ(imports, closes) << "imported while imported";
        ++imports;
        std::vector<UniqueFd> fds;
        fds.push_back(std::move(*os::reopen(file_.get(), Access::kReadWrite)));
        it.set_live(grant_of(5));
        it.answer<wire::Import>(request, grant_of(5), fds);
      } else if (request.kind() == wire::Kind::kClose) {
        ++closes;
      } else {
        return;
      }
    }
  });
  {
    Client client(broker_.address());
    Imports importing(client);
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < kRounds; ++round) {
          const auto import = importing.open(kKey, 0);
          ASSERT_TRUE(import) << import.error().what();
          std::atomic_ref(*reinterpret_cast<int*>(import->base)).fetch_add(1);
          ASSERT_TRUE(importing.close(kKey));
        }
      });
    }
    for (auto& thread : threads)
      thread.join();
    EXPECT_FALSE(importing.close(kKey));
  }
  broker_.finish();
  EXPECT_EQ(imports, closes);
  EXPECT_GT(imports, 0);
}

TEST_F(AnImporter, OutlivesItsBroker) {
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    answer_import(it, grant_of(5), file_);
    it.hang_up();
    it.open_session();
    it.answer<wire::Stat>(it.expect<wire::Stat>(), {});
    it.answer<wire::Stat>(it.expect<wire::Stat>(), {});  // And no CLOSE between them.
  });
  const auto import = imports_.open(kKey, 0);
  ASSERT_TRUE(import);
  ASSERT_TRUE(client_.stat(0));
  EXPECT_EQ(imports_.open(kKey, 0)->base, import->base);
  import->base[0] = std::byte{1};
  EXPECT_TRUE(imports_.close(kKey));
  EXPECT_TRUE(imports_.close(kKey)->has_value());
  EXPECT_FALSE(imports_.find(import->base).has_value());
  EXPECT_TRUE(client_.stat(0));
}

// The mapping is this process's until it closes it; the key opens nothing any more.
TEST_F(AnImporter, AnEndedExportIsNotServedFromWhatIsHeld) {
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    answer_import(it, grant_of(5), file_);
    it.refuse<wire::Import>(it.expect<wire::Import>(), Reason::kExportEnded);
    expect_close(it, 5);
  });
  const auto import = imports_.open(kKey, 0);
  ASSERT_TRUE(import);
  broker_.set_ended(5);
  const auto again = imports_.open(kKey, 0);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().reason, Reason::kExportEnded);
  import->base[0] = std::byte{1};
  EXPECT_TRUE(imports_.close(kKey)->has_value());
}

TEST_F(AnImporter, AForkedChildHoldsNothing) {
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    answer_import(it, grant_of(5), file_);
  });
  const auto import = imports_.open(kKey, 0);
  ASSERT_TRUE(import);
  broker_.finish();  // A child of a process with one thread is all that is asked here.
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    client_.forget_after_fork();
    imports_.forget_after_fork();
    unsigned char resident = 0;
    const bool mapped = ::mincore(import->base, kPage, &resident) == 0;
    const bool held = imports_.find(import->base).has_value();
    ::_exit(!mapped && !held && !imports_.close(kKey) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  import->base[0] = std::byte{1};
  EXPECT_TRUE(imports_.close(kKey)->has_value());
}

}  // namespace
}  // namespace hufu::share
