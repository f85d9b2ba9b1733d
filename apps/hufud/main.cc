// hufud: the broker. Makes shared memory, decides who may map it, records it.
//
// Started on demand by the first client of a user (--ready-fd tells that client when to go on, or
// why not), or by hand. Everything it does is src/broker; here are its options.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "audit/location.h"
#include "broker/server.h"
#include "os/device_capacity.h"
#include "os/file.h"
#include "os/process.h"

#include <CLI/CLI.hpp>

namespace {

using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;

struct Settings {
  std::string socket;
  std::string audit_directory;
  std::string capacity;
  std::uint32_t devices = hufu::os::kDefaultDevices;
  std::int64_t idle_ms = 10'000;
  bool overcommit = false;
  bool accept_damage = false;
  std::uint64_t max_sessions = hufu::broker::Limits{}.sessions_per_uid;
  std::uint64_t max_blocks = hufu::broker::Limits{}.blocks_per_uid;
  int ready_fd = -1;
};

constexpr const char* kFooter = R"(Examples:
  hufud --socket /tmp/hufu-test/broker.sock --idle-ms 0
      serve that socket until SIGTERM; clients use HUFU_BROKER=unix:/tmp/hufu-test/broker.sock
  hufud --socket "$XDG_RUNTIME_DIR/hufu/broker.sock" --devices 2 --device-capacity 1G
      two devices of 1 GiB each

Usually nobody starts hufud: the first client does, and it leaves when it has been idle.)";

// Says to whoever started us how it went: on the pipe, or on stderr when started by hand.
void announce(int ready_fd, std::string_view text) {
  if (ready_fd < 0) {
    std::fprintf(stderr, "hufud: %.*s\n", static_cast<int>(text.size()), text.data());
    return;
  }
  const std::string line = std::string(text) + "\n";
  // The starter may be gone; then nobody is left to tell.
  [[maybe_unused]] const ssize_t written = ::write(ready_fd, line.data(), line.size());
  ::close(ready_fd);
}

Result<hufu::broker::ServerOptions> server_options(const Settings& settings) {
  hufu::broker::ServerOptions options;
  options.socket_path = settings.socket;
  options.version = HUFU_VERSION;
  options.accept_damage = settings.accept_damage;
  options.idle = std::chrono::milliseconds(settings.idle_ms);
  const auto home = hufu::audit::choose_directory(settings.audit_directory, settings.socket);
  options.audit_directory = home.path;
  options.audit_is_volatile = home.is_volatile;

  const auto capacity = hufu::os::device_capacity({.devices = settings.devices,
                                                   .capacity = settings.capacity,
                                                   .overcommit = settings.overcommit});
  if (!capacity) return capacity.error();

  const auto limits = hufu::broker::limits_within(
      {.sessions_per_uid = settings.max_sessions, .blocks_per_uid = settings.max_blocks},
      hufu::os::raise_descriptor_limit(), hufu::os::has_pidfs());
  if (!limits) return limits.error();
  options.core = {.mode = hufu::policy::BrokerMode::kPersonal,
                  .devices = settings.devices,
                  .device_capacity = *capacity,
                  .limits = *limits,
                  .overflow = {.uid = hufu::os::overflow_uid(), .gid = hufu::os::overflow_gid()},
                  .pid = ::getpid(),
                  .uid = ::geteuid()};
  return options;
}

int run(const Settings& settings) {
  ::umask(077);
  const auto options = server_options(settings);
  if (!options) {
    announce(settings.ready_fd, options.error().what());
    return EXIT_FAILURE;
  }
  auto server = hufu::broker::Server::start(*options);
  if (!server) {
    announce(settings.ready_fd, server.error().what());
    return EXIT_FAILURE;
  }
  if (*server == nullptr) {
    // Another broker was faster, or was here all the time: whoever waits for us is served.
    announce(settings.ready_fd, settings.ready_fd < 0
                                    ? "another broker already serves " + settings.socket
                                    : std::string("ready"));
    return EXIT_SUCCESS;
  }
  announce(settings.ready_fd, "ready");
  const auto served = (*server)->run();
  return served ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("hufud, the Hufu broker: makes shared memory, decides who may map it, records it.",
               "hufud");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("hufud " HUFU_VERSION));
  app.add_option("--socket", settings.socket, "Serve this Unix socket")->required();
  app.add_option("--audit-dir", settings.audit_directory, "Where the audit log lies")
      ->envname("HUFU_AUDIT_DIR");
  app.add_option("--devices", settings.devices, "How many devices there are")
      ->envname("HUFU_DEVICES")
      ->capture_default_str();
  app.add_option("--device-capacity", settings.capacity,
                 "Memory of each device, as in 512M (default: 3/4 of the machine, split)")
      ->envname("HUFU_DEVICE_CAPACITY");
  app.add_flag("--overcommit", settings.overcommit, "Allow more capacity than the machine has")
      ->envname("HUFU_OVERCOMMIT");
  app.add_option("--idle-ms", settings.idle_ms, "Leave after so long without clients; 0: never")
      ->envname("HUFU_IDLE_MS")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--max-sessions", settings.max_sessions, "Processes of one user at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--max-blocks", settings.max_blocks,
                 "Blocks of one user; at most half of (hard limit of descriptors - 512)")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--accept-damage", settings.accept_damage,
               "Grant again although the audit log was found damaged; recorded");
  app.add_option("--ready-fd", settings.ready_fd, "Report readiness or the failure here")
      ->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Error& error) {
    if (settings.ready_fd >= 0) announce(settings.ready_fd, error.what());
    return app.exit(error);
  }
  return run(settings);
}
