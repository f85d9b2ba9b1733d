#pragma once

// For tests: the other end of the protocol, as a script says.
//
// A script runs in a thread of its own and speaks the wire with real sockets and real descriptors.
// It can do what no broker should: stay silent, lie, hang up. Every wait of it ends.

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "base/unique_fd.h"
#include "os/published.h"
#include "os/reported.h"
#include "os/socket.h"
#include "share/address.h"
#include "wire/codec.h"

namespace hufu::share {

class FakeBroker {
 public:
  using Script = std::function<void(FakeBroker&)>;

  FakeBroker() {
    char name[] = "/tmp/hufu-test-XXXXXX";
    directory_ = ::mkdtemp(name);
    auto listener = os::listen_at(path(), 4);
    EXPECT_TRUE(listener) << listener.error().what();
    listener_ = std::move(*listener);
    life_.claim_life_word();
  }
  ~FakeBroker() {
    finish();
    std::filesystem::remove_all(directory_);
  }
  FakeBroker(const FakeBroker&) = delete;
  FakeBroker& operator=(const FakeBroker&) = delete;

  std::string path() const { return directory_ + "/broker.sock"; }
  BrokerAddress address() const { return {BrokerMode::kPersonal, path(), false}; }

  void play(Script script) {
    thread_ = std::thread([this, script = std::move(script)] { script(*this); });
  }
  // Until the script has run to its end.
  void finish() {
    if (thread_.joinable()) thread_.join();
  }

  // --- For scripts ---

  void accept() {
    wait(listener_.get(), "a connection");
    auto accepted = os::accept_from(listener_.get());
    EXPECT_TRUE(accepted && *accepted);
    if (accepted) connection_ = std::move(*accepted);
  }

  // Accepts and answers HELLO.
  void open_session() {
    accept();
    answer<wire::Hello>(expect<wire::Hello>(), hello(), status_descriptors());
  }

  // The next request, which must be an R.
  template <class R>
  wire::Request expect() {
    return expect_one_of<R>();
  }
  template <class... Rs>
  wire::Request expect_one_of() {
    wait(connection_.get(), "a request");
    std::array<std::byte, wire::kMaxMessage> buffer{};
    const auto packet = os::receive(connection_.get(), buffer, nullptr);
    if (!packet || packet->end) {
      ADD_FAILURE() << "the client hung up instead of asking";
      return {};
    }
    auto decoded = wire::decode_request(packet->bytes);
    auto* request = std::get_if<wire::Request>(&decoded);
    EXPECT_NE(request, nullptr) << "the client's request does not decode";
    if (request == nullptr) return {};
    EXPECT_TRUE((std::holds_alternative<Rs>(request->body) || ...))
        << static_cast<int>(request->kind());
    return *request;
  }

  void expect_end() {
    wait(connection_.get(), "the client to hang up");
    std::array<std::byte, wire::kMaxMessage> buffer{};
    const auto packet = os::receive(connection_.get(), buffer, nullptr);
    EXPECT_TRUE(!packet || packet->end);
  }

  template <class R>
  void answer(const wire::Request& to, const typename wire::Protocol<R>::Reply& reply,
              const std::vector<UniqueFd>& fds = {}) {
    answer_as<R>(to.id, reply, fds);
  }
  template <class R>
  void answer_as(std::uint64_t id, const typename wire::Protocol<R>::Reply& reply,
                 const std::vector<UniqueFd>& fds = {}) {
    const auto frame = wire::encode(wire::Protocol<R>::kKind, wire::kReply, id, reply);
    const auto sent = os::send(connection_.get(), frame.view(), fds);
    EXPECT_TRUE(sent) << sent.error().what();
  }
  template <class R>
  void refuse(const wire::Request& to, Reason reason) {
    const wire::Refusal refusal{static_cast<std::uint16_t>(reason), 0, 0, {}};
    const auto frame =
        wire::encode(wire::Protocol<R>::kKind, wire::kReply | wire::kRefused, to.id, refusal);
    EXPECT_TRUE(os::send(connection_.get(), frame.view(), {}));
  }

  void refuse_unnumbered(Reason reason, const std::array<std::uint64_t, 4>& numbers) {
    const wire::Refusal refusal{static_cast<std::uint16_t>(reason), 0, 0, numbers};
    EXPECT_TRUE(os::send(connection_.get(), wire::encode_unnumbered(refusal).view(), {}));
  }

  void wait_readable() const { wait(connection_.get(), "a request"); }
  void hang_up() { connection_.reset(); }
  UniqueFd take_connection() { return std::move(connection_); }
  void give_connection(UniqueFd connection) { connection_ = std::move(connection); }

  // What comes with HELLO: the words of the session, and a life word that the test's thread holds.
  std::vector<UniqueFd> status_descriptors() const {
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(*words_.reader()));
    fds.push_back(std::move(*life_.reader()));
    fds.push_back(std::move(*os::ReportedView::make("test", wire::kUsagePageBytes)->writer()));
    return fds;
  }
  // Says of an import granted with this reply that it is good.
  void set_live(const wire::ImportReply& reply) { words_.word(reply.slot).store(reply.status); }
  void set_ended(std::uint32_t slot) {
    words_.word(slot).store(wire::status_word(1, wire::StatusState::kEnded));
  }

  static wire::HelloReply hello() {
    wire::HelloReply reply{};
    reply.session = 1;
    reply.instance[0] = 7;
    reply.device_capacity = 1 << 30;
    reply.devices = 4;
    reply.peer_pid = 4711;
    reply.broker_pid = 815;
    reply.broker_uid = 99;
    reply.mode = 1;
    return reply;
  }

 private:
  static void wait(int fd, const char* what) {
    constexpr int kLongMs = 20'000;  // Only a test that fails waits for it.
    pollfd poller{.fd = fd, .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&poller, 1, kLongMs), 1) << "no sign of " << what;
  }

  os::PublishedMemory words_ = std::move(*os::PublishedMemory::make("words", wire::kStatusBytes));
  os::PublishedMemory life_ = std::move(*os::PublishedMemory::make("life", wire::kLifePageBytes));
  std::string directory_;
  UniqueFd listener_;
  UniqueFd connection_;
  std::thread thread_;
};

}  // namespace hufu::share
