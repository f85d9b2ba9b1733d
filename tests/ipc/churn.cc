#include "churn.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "acl/acl.h"
#include "base/units.h"

namespace hufu::test {
namespace {

constexpr std::size_t kKeyLength = 64;
constexpr std::uint64_t kAnyProcess = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION;

class Churn {
 public:
  Churn(ChurnBoard& board, std::size_t seat, std::uint64_t seed)
      : board_(board), seat_(board->seats[seat]), random_(seed) {}

  void run() {
    must(aclrtSetDevice(0), "aclrtSetDevice");
    seat_.pid = ::getpid();
    while (board_->stop == 0 && seat_.failed == 0) {
      step();
      const std::uint64_t made = seat_.steps.fetch_add(1) + 1;
      // On a busy machine the test comes late, and all would be busy until then.
      while (made == seat_.most && board_->stop == 0)
        (void)::usleep(1000);
    }
  }

 private:
  struct Block {
    std::byte* at;
    std::size_t size;
    std::string key;
  };

  void step() {
    switch (random_() % 8) {
      case 0:
      case 1:
        if (blocks_.size() < 6) allocate();
        break;
      case 2:
      case 3:
        if (!blocks_.empty()) export_one(blocks_[random_() % blocks_.size()]);
        break;
      case 4:
      case 5:
        if (held_.size() < 6) import_one();
        break;
      case 6:
        if (!held_.empty()) close_one();
        break;
      case 7:
        if (!blocks_.empty()) free_one();
        break;
    }
  }

  void allocate() {
    constexpr std::size_t kLargest = 512 * kKiB;
    const std::size_t size = 1 + random_() % (random_() % 2 == 0 ? 64 : kLargest);
    void* at = nullptr;
    if (!must(aclrtMalloc(&at, size, ACL_MEM_MALLOC_NORMAL_ONLY), "aclrtMalloc")) return;
    const std::vector<std::byte> bytes(size, std::byte{0x5a});
    must(aclrtMemcpy(at, size, bytes.data(), size, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
    blocks_.push_back({.at = static_cast<std::byte*>(at), .size = size, .key = {}});
  }

  // Small ones are refused: their page has neighbours.
  void export_one(Block& block) {
    std::array<char, kKeyLength + 1> key{};
    const bool any = random_() % 2 == 0;
    if (aclrtIpcMemGetExportKey(block.at, block.size, key.data(), key.size(),
                                any ? kAnyProcess : 0) != ACL_SUCCESS) {
      return;
    }
    if (!any) {
      // Whoever sits there, if he is still there.
      std::int32_t pid = board_->seats[random_() % ChurnBoard::kSeats].pid;
      (void)aclrtIpcMemSetImportPid(key.data(), &pid, 1);
    }
    block.key = key.data();
    own_.insert(block.key);
    board_.publish(random_() % ChurnBoard::kKeys, key.data());
  }

  // Refused more often than not: the exporter is gone, or has not listed us.
  void import_one() {
    const std::string key = board_.key(random_() % ChurnBoard::kKeys);
    // Closing a key that is one's own and imported too would be either.
    if (own_.contains(key)) return;
    void* at = nullptr;
    if (aclrtIpcMemImportByKey(&at, key.c_str(), 0) != ACL_SUCCESS) return;
    seat_.granted.fetch_add(1);
    std::byte first{};
    must(aclrtMemcpy(&first, 1, at, 1, ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy from an import");
    if (first != std::byte{0x5a} && first != std::byte{0}) failed("strange bytes in an import", 0);
    held_.push_back(key);
  }

  void close_one() {
    const auto which = held_.begin() + static_cast<std::ptrdiff_t>(random_() % held_.size());
    must(aclrtIpcMemClose(which->c_str()), "aclrtIpcMemClose");
    held_.erase(which);
  }

  void free_one() {
    const auto which = blocks_.begin() + static_cast<std::ptrdiff_t>(random_() % blocks_.size());
    if (!which->key.empty() && random_() % 2 == 0) (void)aclrtIpcMemClose(which->key.c_str());
    must(aclrtFree(which->at), "aclrtFree");
    blocks_.erase(which);
  }

  bool must(aclError code, const char* what) {
    if (code != ACL_SUCCESS) failed(what, code);
    return code == ACL_SUCCESS;
  }
  void failed(const char* what, aclError code) {
    const char* why = aclGetRecentErrMsg();
    // The text may tell of earlier errors first.
    std::string text = why == nullptr ? "" : why;
    if (text.size() > 160) text.erase(0, text.size() - 160);
    text = fmt::format("{}: {} {}", what, code, text);
    std::copy_n(text.begin(), std::min(text.size(), seat_.text.size() - 1), seat_.text.begin());
    seat_.failed = 1;
  }

  ChurnBoard& board_;
  ChurnBoard::Seat& seat_;
  std::mt19937_64 random_;
  std::vector<Block> blocks_;
  std::vector<std::string> held_;
  std::set<std::string> own_;
};

const HelperProgram kChurn("churn", [](Channel& channel) {
  const auto line = channel.next();
  if (!line) return;
  const Words words = split(*line);
  ChurnBoard board(words.at(0));
  Churn(board, std::stoul(words.at(1)), std::stoull(words.at(2))).run();
});

}  // namespace

ChurnBoard::ChurnBoard(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file || ::ftruncate(file.get(), sizeof(Layout)) != 0) throw Stuck("no file " + path);
  void* at = ::mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) throw Stuck("no memory for " + path);
  layout_ = static_cast<Layout*>(at);
}

ChurnBoard::~ChurnBoard() { ::munmap(layout_, sizeof(Layout)); }

void ChurnBoard::publish(std::size_t place, const char* key) {
  auto& words = layout_->keys[place];
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, key + i * sizeof(word), sizeof(word));
    words[i] = word;
  }
}

std::string ChurnBoard::key(std::size_t place) const {
  std::string key(kKeyLength, '\0');
  const auto& words = layout_->keys[place];
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint64_t word = words[i];
    std::memcpy(key.data() + i * sizeof(word), &word, sizeof(word));
  }
  return key;
}

Helper start_churn(const TestBroker& broker, const std::string& board, std::size_t seat,
                   std::uint64_t seed) {
  Helper helper = broker.helper("churn");
  helper.tell(fmt::format("{} {} {}", board, seat, seed));
  return helper;
}

}  // namespace hufu::test
