// hufu share: puts a file's bytes into device memory, exports it, and stays until it is told to go.
//
// The bytes are read once, straight into the memory that importers will map. The exporter must live
// as long as new importers are to come: its end is the end of the key. Those who have imported by
// then keep what they have.

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "hufu/commands.h"
#include "hufu/files.h"
#include "hufu/output.h"
#include "hufu/shares.h"
#include "hufu/signals.h"
#include "os/process.h"

namespace hufu::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kFooter = R"(Examples:
  hufu share model.bin                         key on stdout, until Ctrl-C, any process of yours
  hufu share model.bin -o key --for 60         key in a file of mode 0600, for a minute
  hufu share w.pt --allow-pid 4711 --read-only pid 4711 only, and it cannot write
  hufu share batch.npy --until-imported 4      until it was imported four times
  tar c data | hufu share - | ssh-like-tool    from a pipe; the key is text and travels as you like

Exit code: 0 done, 1 failed or refused, 2 the command line is wrong. Ctrl-C and SIGTERM end it with
0. Who has imported keeps the memory after that; nobody else gets it.)";

struct Options {
  std::string file;
  std::vector<std::int32_t> allowed;
  std::string key_file;
  std::optional<double> seconds;
  std::uint64_t imports = 0;
  bool read_only = false;
  int device = 0;
  bool json = false;
};

// A bar on a terminal, for what takes more than a second.
class Progress {
 public:
  Progress(const std::string& name, std::uint64_t total) : name_(name), total_(total) {}
  ~Progress() {
    constexpr std::string_view kClearLine = "\r\033[K";
    if (drawn_) put(kClearLine);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void at(std::uint64_t done) {
    const auto now = Clock::now();
    if (!terminal_ || now < next_) return;
    constexpr std::uint64_t kWidth = 30;
    const std::string full(done * kWidth / total_, '#');
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double rate = static_cast<double>(done) / seconds;
    put(fmt::format("\rhufu: reading {} [{:.<{}}] {:3} %, {}/s ", name_, full, kWidth,
                    done * 100 / total_, human_size(static_cast<std::uint64_t>(rate))));
    drawn_ = true;
    next_ = now + std::chrono::milliseconds(100);
  }

 private:
  static void put(std::string_view text) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  }

  const std::string& name_;
  std::uint64_t total_;
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_ = start_ + std::chrono::seconds(1);
  bool drawn_ = false;
};

// Device memory, freed on the way out.
class Block {
 public:
  explicit Block(std::uint64_t size) : size_(size) {
    // Less than a page would share its page with others' memory, and could not be exported.
    const std::uint64_t asked = std::max(size, bytes_of(PageSize::k4KiB));
    require(fmt::format("allocating {} bytes", asked),
            ::aclrtMalloc(&base_, asked, ACL_MEM_MALLOC_HUGE_FIRST));
  }
  ~Block() { ::aclrtFree(base_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void* base() const { return base_; }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(base_), size_}; }

 private:
  void* base_ = nullptr;
  std::uint64_t size_;
};

constexpr std::size_t kStep = 4 * kMiB;  // Read at once: small enough to stop soon, and to show.

[[noreturn]] void fail_empty(const Source& source) {
  throw Failure{ENODATA, source.name() + " is empty; there is nothing to share"};
}

std::unique_ptr<Block> load_file(const Source& source, int stop) {
  const std::uint64_t size = *source.size();
  auto block = std::make_unique<Block>(size);
  Progress progress(source.name(), size);
  std::span<std::byte> rest = block->bytes();
  while (!rest.empty()) {
    const std::size_t got = source.read(rest.first(std::min(rest.size(), kStep)), stop);
    if (got == 0) {
      throw Failure{EIO, fmt::format("{} became shorter while it was read: {} of {} bytes came",
                                     source.name(), size - rest.size(), size)};
    }
    rest = rest.subspan(got);
    progress.at(size - rest.size());
  }
  return block;
}

// A pipe does not say how much will come, and a block has a size: this is the one case in which the
// bytes are copied once more.
std::unique_ptr<Block> load_pipe(const Source& source, int stop) {
  std::size_t free = 0;
  std::size_t total = 0;
  require("asking for free memory", ::aclrtGetMemInfo(ACL_HBM_MEM, &free, &total));
  std::vector<std::byte> bytes;
  std::size_t used = 0;
  for (;;) {
    if (bytes.size() - used < kStep) bytes.resize(std::max(2 * bytes.size(), kStep));
    const std::size_t got = source.read(std::span(bytes).subspan(used, kStep), stop);
    used += got;
    if (got == 0) break;
    if (used > free) {
      throw Failure{ENOMEM, fmt::format("{} gave {} bytes already, and the device has {} free",
                                        source.name(), used, free)};
    }
  }
  if (used == 0) fail_empty(source);
  auto block = std::make_unique<Block>(used);
  std::copy_n(bytes.begin(), used, block->bytes().begin());
  return block;
}

constexpr std::size_t kKeySize = 65;  // With its NUL.

// An exported range: withdrawn on the way out, if nobody did that before.
class Export {
 public:
  Export(const Block& block, const Options& options) {
    std::uint64_t flags = options.allowed.empty()
                              ? ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION
                              : ACL_RT_IPC_MEM_EXPORT_FLAG_DEFAULT;
    if (options.read_only) flags |= HUFU_IPC_MEM_EXPORT_FLAG_READ_ONLY;
    require("exporting", ::aclrtIpcMemGetExportKey(block.base(), block.bytes().size(), key_.data(),
                                                   key_.size(), flags));
    open_ = true;
    require("naming the key", ::hufuIpcMemGetPublicId(key_.data(), public_id_.data()));
  }
  ~Export() {
    if (open_) ::aclrtIpcMemClose(key_.data());
  }
  Export(const Export&) = delete;
  Export& operator=(const Export&) = delete;

  void allow(std::vector<std::int32_t> pids) {
    constexpr std::size_t kAtOnce = 31;
    for (std::size_t at = 0; at < pids.size(); at += kAtOnce) {
      require("listing the allowed pids",
              ::aclrtIpcMemSetImportPid(key_.data(), pids.data() + at,
                                        std::min(kAtOnce, pids.size() - at)));
    }
  }
  void withdraw() {
    open_ = false;
    require("withdrawing", ::aclrtIpcMemClose(key_.data()));
  }

  std::string_view key() const { return key_.data(); }
  std::string_view public_id() const { return public_id_.data(); }

 private:
  std::array<char, kKeySize> key_{};
  std::array<char, HUFU_PUBLIC_ID_SIZE> public_id_{};
  bool open_ = false;
};

void announce(const Options& options, const Source& source, const Export& exported,
              std::uint64_t size) {
  if (!options.key_file.empty())
    write_secret(options.key_file, fmt::format("{}\n", exported.key()));
  if (options.json) {
    nlohmann::json document = {{"public_id", exported.public_id()},
                               {"size", size},
                               {"pid", ::getpid()},
                               {"access", options.read_only ? "read-only" : "read-write"},
                               {"allowed_pids", options.allowed}};
    if (options.key_file.empty()) document["key"] = exported.key();
    if (!options.key_file.empty()) document["key_file"] = options.key_file;
    print_json(document);
  } else if (options.key_file.empty()) {
    print(fmt::format("{}\n", exported.key()));
  }

  std::string who = "any process of this user";
  if (!options.allowed.empty()) who = fmt::format("pid {}", fmt::join(options.allowed, ", "));
  std::string until = "until Ctrl-C";
  if (options.seconds) until = fmt::format("for {} s", *options.seconds);
  if (options.imports != 0) until = fmt::format("until {} imports", options.imports);
  const std::string how = options.key_file.empty()
                              ? "open it with: hufu open (the key on its stdin)"
                              : "open it with: hufu open @" + options.key_file;
  say(fmt::format("sharing {} ({}, {} bytes{}) as {} with {}, {}; {}", source.name(),
                  human_size(size), size, options.read_only ? ", read-only" : "",
                  exported.public_id(), who, until, how));
}

// Nothing when the broker cannot be named; then its end goes unnoticed here.
UniqueFd watch_broker() {
  hufuBrokerInfo broker{};
  broker.structSize = sizeof broker;
  if (::hufuGetBrokerInfo(&broker) != ACL_SUCCESS) return {};
  auto pidfd = os::open_pidfd(broker.pid);
  return pidfd ? std::move(*pidfd) : UniqueFd();
}

// Readable when somebody has imported the key. The broker counts also those who have closed it
// again, so nobody is missed.
class ImportSignal {
 public:
  explicit ImportSignal(const Export& exported)
      : key_(exported.key()), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_) fail_system("eventfd", errno);
    require("watching for imports", ::hufuIpcMemSetCallback(key_.c_str(), &on_event, &wake_));
  }
  ~ImportSignal() { ::hufuIpcMemSetCallback(key_.c_str(), nullptr, nullptr); }
  ImportSignal(const ImportSignal&) = delete;
  ImportSignal& operator=(const ImportSignal&) = delete;

  int fd() const { return wake_.get(); }
  void reset() const {
    eventfd_t count = 0;
    (void)::eventfd_read(wake_.get(), &count);
  }

 private:
  static void on_event(const char* /*id*/, hufuIpcMemEvent event, void* arg) {
    if (event != HUFU_IPC_MEM_IMPORTED) return;
    (void)::eventfd_write(static_cast<const UniqueFd*>(arg)->get(), 1);
  }

  std::string key_;
  UniqueFd wake_;
};

// Returns why it ended. The end of the broker, which ends the key, is a Failure.
std::string wait_for_end(const Options& options, const Export& exported, int stop, int broker) {
  const auto end =
      options.seconds
          ? std::optional(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                             std::chrono::duration<double>(*options.seconds)))
          : std::nullopt;
  std::optional<ImportSignal> imported;
  if (options.imports != 0) imported.emplace(exported);
  for (;;) {
    if (imported) {
      imported->reset();
      const auto share = find_share(exported.public_id());
      if (share && share->imports >= options.imports) {
        return fmt::format("imported {} times", share->imports);
      }
    }
    int timeout_ms = -1;
    if (end) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*end - Clock::now()).count();
      if (left <= 0) return "its time is over";
      timeout_ms = static_cast<int>(std::min<std::int64_t>(left, 3'600'000));
    }
    std::array<pollfd, 3> waited = {pollfd{.fd = stop, .events = POLLIN},
                                    pollfd{.fd = broker, .events = POLLIN},
                                    pollfd{.fd = imported ? imported->fd() : -1, .events = POLLIN}};
    if (::poll(waited.data(), waited.size(), timeout_ms) < 0 && errno != EINTR) {
      fail_system("poll", errno);
    }
    if (waited[0].revents != 0) return "told to end";
    if (waited[1].revents != 0) {
      throw Failure{ECONNRESET,
                    "the broker has ended, and with it the key; who has imported keeps the memory. "
                    "Share the file again"};
    }
  }
}

int share(const Options& options) {
  const StopSignals stop;
  const Source source = Source::open(options.file);
  if (source.size() == 0U) fail_empty(source);
  const Device device(options.device);
  const UniqueFd broker = watch_broker();
  const auto block = source.size() ? load_file(source, stop.fd()) : load_pipe(source, stop.fd());
  Export exported(*block, options);
  exported.allow(options.allowed);
  announce(options, source, exported, block->bytes().size());

  const std::string why = wait_for_end(options, exported, stop.fd(), broker.get());
  const auto still = find_share(exported.public_id());  // It is not listed once it is withdrawn.
  const std::uint32_t holders = still ? still->importers : 0;
  exported.withdraw();
  say(fmt::format("{}: withdrawn; {}", why,
                  holders == 0
                      ? std::string("nobody holds it")
                      : fmt::format("{} process{} still hold{} it, and its memory goes "
                                    "when they let go",
                                    holders, holders == 1 ? "" : "es", holders == 1 ? "s" : "")));
  return kOk;
}

}  // namespace

void add_share(CLI::App& program, Action& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      program.add_subcommand("share", "Share a file's bytes with other processes, without copying");
  command->footer(kFooter);
  command->add_option("FILE", options->file, "The file, or - for stdin")->required();
  command
      ->add_option("--allow-pid", options->allowed,
                   "Only this process may import, by its pid; may be repeated. It must be running")
      ->check(CLI::PositiveNumber)
      ->allow_extra_args(false);
  command->add_option("-o,--output", options->key_file,
                      "Write the key here (mode 0600) instead of to stdout");
  auto* seconds = command->add_option("--for", options->seconds, "End after so many seconds")
                      ->check(CLI::PositiveNumber);
  command->add_option("--until-imported", options->imports, "End after so many imports")
      ->check(CLI::PositiveNumber)
      ->excludes(seconds);
  command->add_flag("--read-only", options->read_only,
                    "Importers cannot write; the kernel sees to it");
  command->add_option("--device", options->device, "Whose memory to use")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--json", options->json, kJsonHelp);
  command->callback([options, &chosen] { chosen = [options] { return share(*options); }; });
}

}  // namespace hufu::cli
