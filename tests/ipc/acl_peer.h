#pragma once

// AclPeer: a client of libhufu in a process of its own. Each call is one aclrt* call there; what
// comes back is its code, what it wrote to its outputs, and the text of aclGetRecentErrMsg.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "acl/acl.h"
#include "support/helper.h"
#include "support/test_broker.h"

namespace hufu::test {

class AclPeer {
 public:
  struct Answer {
    aclError code = ACL_SUCCESS;
    Words words;       // The call's outputs.
    std::string text;  // Of the error.

    bool ok() const { return code == ACL_SUCCESS; }
    std::uint64_t value(std::size_t index = 0) const { return std::stoull(words.at(index)); }
  };
  static Answer parse(const std::string& line);

  // A process that has called nothing yet.
  explicit AclPeer(Helper started) : helper(std::move(started)) {}
  // One whose current device is 0, so that it has a session.
  static AclPeer ready(const TestBroker& broker);

  Answer run(std::string_view line) { return parse(helper.ask(line)); }
  // The same, for a test that cannot go on when it fails.
  Answer must(std::string_view line);

  std::uint64_t allocate(std::uint64_t size,
                         aclrtMemMallocPolicy policy = ACL_MEM_MALLOC_HUGE_FIRST);
  // Allocates `size` bytes, fills them with `value` and exports them all.
  struct Export {
    std::uint64_t address;
    std::string key;
  };
  Export share(std::uint64_t size, int value, std::uint64_t flags = 0);
  Answer export_key(std::uint64_t address, std::uint64_t size, std::uint64_t flags = 0,
                    std::size_t length = 65);
  Answer import(const std::string& key) { return run("import " + key); }
  Answer close(const std::string& key) { return run("close " + key); }
  Answer list(const std::string& key, pid_t pid);
  void free(std::uint64_t address);
  int peek(std::uint64_t address);
  void fill(std::uint64_t address, std::uint64_t size, int value);
  // Bytes of device 0 that are in use, by anybody. See WireSession::stat().
  std::uint64_t used();

  // What the broker tells this process of another one's use of device 0.
  struct Usage {
    std::uint64_t requested, reserved, blocks, pieces, chunks, warm, spare, fallbacks, charged;
  };
  Usage usage_of(const AclPeer& other);

  pid_t pid() const { return helper.pid(); }
  Ending kill() { return helper.kill(); }

  Helper helper;
};

}  // namespace hufu::test
