#include "share/handles.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "os/memfd.h"
#include "share/fake_broker.h"

namespace hufu::share {
namespace {

constexpr std::uint64_t kToken = 0x1122334455667788;

class AHandle : public ::testing::Test {
 protected:
  static wire::ImportReply grant() {
    wire::ImportReply reply{};
    reply.share = 5;
    reply.size = kChargeable;
    reply.reported_size = kChargeable;
    reply.page = static_cast<std::uint32_t>(bytes_of(PageSize::k2MiB));
    reply.access = static_cast<std::uint32_t>(Access::kReadWrite);
    reply.device = 1;
    reply.exporter_pid = 77;
    reply.backing = wire::Backing::kShmem;
    reply.slot = 1;
    reply.status = wire::status_word(1, wire::StatusState::kLive);
    reply.public_id[0] = 9;
    return reply;
  }
  void answer_import(FakeBroker& broker) const {
    const auto request = broker.expect<wire::Import>();
    const auto* import = std::get_if<wire::Import>(&request.body);
    ASSERT_NE(import, nullptr);
    EXPECT_EQ(wire::token_of(import->key), kToken);
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(*os::reopen(file_.get(), Access::kReadWrite)));
    broker.answer<wire::Import>(request, grant(), fds);
  }

  static constexpr std::uint64_t kChargeable = 2 * kMiB;
  UniqueFd file_ = std::move(*os::make_memfd("test", kChargeable, os::Backing::kShmem));
  FakeBroker broker_;
  Client client_{broker_.address()};
  Handles handles_{client_};
  const HandleName name_ = HandleName::of_token(kToken);
};

TEST_F(AHandle, GivesTheBlocksDescriptorAndSaysWhatItIs) {
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    answer_import(it);
    (void)it.expect<wire::Close>();
  });
  const auto import = handles_.import(name_, 0);
  ASSERT_TRUE(import) << import.error().what();
  EXPECT_TRUE(import->hold.valid());
  EXPECT_EQ(import->size, 2 * kMiB);
  EXPECT_EQ(import->page, PageSize::k2MiB);
  EXPECT_EQ(import->access, Access::kReadWrite);
  EXPECT_EQ(import->device, 1U);
  EXPECT_EQ(import->exporter_pid, 77);
  EXPECT_EQ(import->public_id.bytes[0], 9U);
  ASSERT_EQ(::pwrite(import->fd.get(), "x", 1, 0), 1);
  char back = 0;
  ASSERT_EQ(::pread(file_.get(), &back, 1, 0), 1);
  EXPECT_EQ(back, 'x');
}

TEST_F(AHandle, IsHeldUntilTheLastOfItsImportsEnds) {
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    answer_import(it);
    answer_import(it);
    // Nothing was said when the first of the two ended, or this were a CLOSE.
    it.answer<wire::Stat>(it.expect<wire::Stat>(), {});
    const auto close = it.expect<wire::Close>();
    EXPECT_EQ(std::get<wire::Close>(close.body).share, 5U);
    answer_import(it);
    (void)it.expect<wire::Close>();
  });
  auto first = handles_.import(name_, 0);
  auto second = handles_.import(name_, 0);
  ASSERT_TRUE(first && second);
  first->hold = Handles::Hold();
  ASSERT_TRUE(client_.stat(0));
  Handles::Hold moved = std::move(second->hold);
  EXPECT_FALSE(second->hold.valid());
  moved = Handles::Hold();
  ASSERT_TRUE(handles_.import(name_, 0)) << "and may be imported again";
  broker_.finish();
}

TEST_F(AHandle, ThatNobodyHasIsAnInvalidHandle) {
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    it.refuse<wire::Import>(it.expect<wire::Import>(), Reason::kHandleUnknown);
    it.refuse<wire::Import>(it.expect<wire::Import>(), Reason::kNotListed);
  });
  const auto unknown = handles_.import(name_, 0);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Errc::kInvalidHandle);
  EXPECT_EQ(unknown.error().what().find(fmt::format("{:x}", kToken)), std::string_view::npos);
  EXPECT_EQ(unknown.error().what().find(fmt::format("{}", kToken)), std::string_view::npos);
  const auto foreign = handles_.import(name_, 0);
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code, Errc::kRefused);
  EXPECT_NE(foreign.error().what().find("aclrtMemSetPidToShareableHandle"), std::string_view::npos);
}

TEST_F(AHandle, ListsAsManyProcessesAsThereAre) {
  std::vector<std::int32_t> pids(wire::kMaxListPids + 3, 0);
  for (std::size_t i = 1; i < pids.size(); ++i)
    pids[i] = static_cast<std::int32_t>(1000 + i);
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    for (const std::uint32_t count : {std::uint32_t{wire::kMaxListPids}, 2U}) {
      const auto request = it.expect<wire::ListPid>();
      EXPECT_EQ(std::get<wire::ListPid>(request.body).count, count);
      it.answer<wire::ListPid>(request, {.added = count, .listed = count});
    }
  });
  EXPECT_TRUE(handles_.list_pids(name_, pids));
}

// Whose handle it is matters more than that nobody was named.
TEST_F(AHandle, IsAskedForEvenWhenNobodyIsNamed) {
  broker_.play([&](FakeBroker& it) {
    it.open_session();
    it.answer<wire::ListPid>(it.expect<wire::ListPid>(), {});
    it.refuse<wire::ListPid>(it.expect<wire::ListPid>(), Reason::kHandleUnknown);
  });
  const std::array<std::int32_t, 2> nobody{};
  const auto refused = handles_.list_pids(name_, nobody);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kRefused);
  const auto unknown = handles_.list_pids(name_, nobody);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Errc::kInvalidHandle);
}

}  // namespace
}  // namespace hufu::share
