#pragma once

// The conformance suite: the C API, call by call, against what its contract says of each.
//
// A case is one call whose answer is fixed by a row of the contract: its code, and what becomes of
// its outputs. Most cases come from a Function: arguments that are good, and then one thing at a
// time that is wrong with them.
//
//   Function(table, "1.4", "aclrtMalloc", aclrtMalloc,
//            [](Bench& b) { return std::tuple(b.freed_by(aclrtFree), kPage, b.policy()); })
//       .good()                                        // they are: else the next lines say nothing
//       .with<0>("devPtr null", nullptr, 100000)
//       .with<1>("size 0", 0, 100000)
//       .without_context(107002);
//
// What every case is judged by, besides its code: an output of a call that failed is untouched, of
// one that succeeded is written, nothing beside it is written ever, and a refusal has a text.
//
// Cases are written from the contract, not from the code. Where Hufu answers otherwise on purpose
// the case says by which row of docs/differences.md, and what HUFU_STRICT=cann makes of it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "acl/acl_rt_memory_soma.h"
#include "support/helper.h"

#include <fmt/format.h>

namespace hufu::conformance {

inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kHuge = std::size_t{2} << 20U;
inline constexpr std::size_t kGiant = std::size_t{1} << 30U;

// What a C caller may pass for an enumerator: any number.
template <class Enum>
Enum from_c(int number) {
  return static_cast<Enum>(number);
}

// What the blocks of a run are made of, and whose answers are expected.
enum class Mode : std::uint8_t {
  kMemfd,       // Memory files of 4-KiB pages; "huge" ones are emulated.
  kStrict,      // The same under HUFU_STRICT=cann.
  kHugetlb,     // The machine's reserved 2-MiB pages.
  kReserved1G,  // Its reserved 1-GiB pages: cases that are about pages.
};

// The code that a case must answer, and under HUFU_STRICT=cann.
struct Codes {
  // NOLINTNEXTLINE(google-explicit-constructor): mostly they are one number.
  Codes(aclError both) : plain(both), strict(both) {}
  Codes(aclError plain_code, aclError strict_code, const char* row)
      : plain(plain_code), strict(strict_code), difference(row) {}

  aclError plain;
  aclError strict;
  const char* difference = nullptr;  // The row of docs/differences.md, by its first cell.
  aclError other = plain;            // As good as the other two, where the contract leaves it open.
};
// The contract names two.
inline Codes either(aclError one, aclError other) {
  Codes codes(one);
  codes.other = other;
  return codes;
}
// Hufu answers otherwise on purpose.
inline Codes differs(const char* row, aclError plain, aclError strict) {
  return {plain, strict, row};
}

// Another process. What is called in it is a function of this program, which both of them are.
class Peer {
 public:
  struct Ask {
    std::array<char, 65> key{};
    std::array<char, 128> bytes{};
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::int64_t number = 0;
  };
  struct Answer {
    aclError code = ACL_SUCCESS;
    std::uint64_t value = 0;
    std::uint64_t second = 0;
    std::array<char, 128> bytes{};
  };
  using Call = Answer (*)(const Ask& ask);

  Peer();
  // Throws when the other process dies of it.
  Answer run(Call call, const Ask& ask);
  std::int32_t pid() const { return helper_.pid(); }
  void kill() {
    (void)helper_.kill();
    dead_ = true;
  }
  bool dead() const { return dead_; }

 private:
  test::Helper helper_;
  bool dead_ = false;
};

// Two of them, started when they are asked for, for all cases of a table.
class Peers {
 public:
  Peer& get(std::size_t index);

 private:
  std::array<std::optional<Peer>, 2> peers_;
};

// A case cannot begin: what it needs was refused.
class Unprepared : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// Throws unless a call that only prepares succeeded.
void need(aclError code, const char* call);

// What a case works with. All that it made through the bench is given back at the end, in reverse.
class Bench {
 public:
  Bench(Mode mode, Peers& peers) : mode_(mode), peers_(peers) {}
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Mode mode() const { return mode_; }
  bool strict() const { return mode_ == Mode::kStrict; }
  // Blocks of this run's pages.
  aclrtMemMallocPolicy policy() const;
  std::size_t page() const;

  // An output of the judged call.
  template <class T>
  T* out() {
    return static_cast<T*>(add_slot(sizeof(T), /*may_stay=*/false));
  }
  // One that a success may leave alone.
  template <class T>
  T* maybe_out() {
    return static_cast<T*>(add_slot(sizeof(T), /*may_stay=*/true));
  }
  void* out_bytes(std::size_t size) { return add_slot(size, /*may_stay=*/false); }
  // One that also a call that fails may write, as its contract says.
  template <class T>
  T* report() {
    return reinterpret_cast<T*>(ordinary(sizeof(T)));
  }
  // One that is given back when it was written.
  template <class Handle>
  Handle* freed_by(aclError (*free)(Handle)) {
    Handle* const made = out<Handle>();
    finally([this, made, free] {
      if (written(made)) check(free(*made) == ACL_SUCCESS, "what was made cannot be freed");
    });
    return made;
  }
  bool written(const void* output) const;

  // Things to work with.
  void* block(std::size_t size, aclrtMemMallocPolicy policy);
  void* block() { return block(page(), policy()); }
  void* host(std::size_t size = kPage);
  // Ordinary memory that the runtime knows nothing of.
  std::byte* ordinary(std::size_t size = kPage);
  aclrtStream stream();
  aclrtStream destroyed_stream();
  // Of the other device, whose context is not current.
  aclrtStream foreign_stream();
  // An export of a block of its own, without whitelist unless told.
  struct Shared {
    void* address;
    const char* key;
  };
  Shared share(std::uint64_t flags = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION);
  const char* key() { return share().key; }
  // 64 characters that no broker made.
  const char* made_up_key();

  Peer& peer(std::size_t index = 0) { return peers_.get(index); }

  // Runs the judged call in a thread that has no context.
  aclError without_context(const std::function<aclError()>& call);
  // The judged call was made in another process, where its text has stayed.
  aclError elsewhere(aclError code) {
    text_ = "(said in the other process)";
    return code;
  }

  template <class T>
  T* array(std::initializer_list<T> values) {
    T* const made = reinterpret_cast<T*>(ordinary(values.size() * sizeof(T)));
    std::copy(values.begin(), values.end(), made);
    return made;
  }

  void finally(std::function<void()> cleanup) { cleanups_.push_back(std::move(cleanup)); }

  void check(bool good, std::string_view claim) {
    if (!good) fail(std::string(claim));
  }
  void check_code(aclError code, aclError expected, std::string_view call) {
    if (code != expected) fail(fmt::format("{}: expected {}, got {}", call, expected, code));
  }
  template <class A, class B>
  void check_equal(const A& found, const B& expected, std::string_view what) {
    if (!(found == expected)) fail(fmt::format("{}: expected {}, got {}", what, expected, found));
  }
  void fail(const std::string& text) { failures_.push_back(text); }

  // The call has answered: what of it is wrong?
  void judge(aclError code, const Codes& expected);
  void clean_up();
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  struct Slot {
    std::vector<std::byte> memory;  // kBeside bytes, the output, kBeside bytes.
    std::size_t size;
    bool may_stay;
  };
  void* add_slot(std::size_t size, bool may_stay);
  static bool untouched(const Slot& slot, std::size_t begin, std::size_t end);

  const Mode mode_;
  Peers& peers_;
  std::deque<Slot> slots_;
  std::deque<std::vector<std::byte>> memory_;
  std::deque<std::array<char, 65>> keys_;
  std::vector<std::function<void()>> cleanups_;
  std::vector<std::string> failures_;
  std::string text_;  // Of the judged call, when another thread made it.
};

struct Case {
  std::string name;  // "1.4 aclrtMalloc: size 0"
  Codes codes;
  std::function<aclError(Bench&)> body;
  bool pages = false;  // Depends on what the blocks are made of.
};

class Table {
 public:
  explicit Table(const char* table_name) : name(table_name) {}

  using Body = std::function<aclError(Bench&)>;
  void add(std::string_view section, std::string_view function, std::string_view what, Codes codes,
           Body body) {
    cases.push_back({fmt::format("{} {}: {}", section, function, what), codes, std::move(body)});
  }
  // One that is worth a run on every kind of page.
  void add_on_pages(std::string_view section, std::string_view function, std::string_view what,
                    Codes codes, Body body) {
    add(section, function, what, codes, std::move(body));
    cases.back().pages = true;
  }

  const char* name;
  std::vector<Case> cases;
};

// All that can be said about one function by changing one argument at a time.
template <class... Args>
class Function {
 public:
  using Arguments = std::tuple<Args...>;
  using Make = std::function<Arguments(Bench&)>;
  using Change = std::function<void(Bench&, Arguments&)>;

  Function(Table& table, const char* section, const char* name, aclError (*call)(Args...),
           std::type_identity_t<Make> make)
      : table_(table), section_(section), name_(name), call_(call), make_(std::move(make)) {}

  Function& good(const char* what = "good arguments", const Change& then = {}) {
    return when(what, {}, ACL_SUCCESS, then);
  }
  template <std::size_t I>
  Function& with(const char* what, std::tuple_element_t<I, Arguments> value, Codes codes) {
    return when(
        what, [value](Bench&, Arguments& all) { std::get<I>(all) = value; }, codes);
  }
  // Of what `change` makes of the good arguments; `then` looks at what has come of it.
  Function& when(const char* what, const Change& change, Codes codes, const Change& then = {}) {
    table_.add(section_, name_, what, codes,
               [make = make_, call = call_, change, then](Bench& bench) {
                 Arguments all = make(bench);
                 if (change) change(bench, all);
                 const aclError code = std::apply(call, all);
                 if (then && code == ACL_SUCCESS) then(bench, all);
                 return code;
               });
    return *this;
  }
  Function& without_context(Codes codes, const char* what = "no context",
                            const Change& change = {}) {
    table_.add(section_, name_, what, codes, [make = make_, call = call_, change](Bench& bench) {
      Arguments all = make(bench);
      if (change) change(bench, all);
      return bench.without_context([&] { return std::apply(call, all); });
    });
    return *this;
  }

 private:
  Table& table_;
  const char* section_;
  const char* name_;
  aclError (*call_)(Args...);
  Make make_;
};

Table device_memory_cases();
Table host_memory_cases();
Table managed_cases();
Table copy_cases();
Table task_cases();
Table vmm_cases();
Table vmm_sharing_cases();
Table ipc_cases();
Table pool_cases();
Table allocator_cases();

}  // namespace hufu::conformance
