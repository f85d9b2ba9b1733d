// hufu open: imports a key, and does one thing with the memory behind it.
//
// A key opens memory, and `ps` shows arguments to everybody: so the key comes from stdin or a file.
// As an argument it works, is overwritten at once, and we say so.

#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "base/units.h"
#include "hufu/commands.h"
#include "hufu/files.h"
#include "hufu/output.h"
#include "hufu/shares.h"

#include <openssl/evp.h>

namespace hufu::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  hufu open @key                   what it is: size, page size, access, owner (the same as --stat)
  hufu open @key -o copy.bin       write the bytes to a file
  hufu open @key --sha256          their SHA-256, and the share's public id
  some-command | hufu open -o -    key from stdin, bytes to stdout

Exit code: 0 done, 1 failed or refused (the reason is on stderr), 2 the command line is wrong.)";

struct Options {
  std::string key;
  std::string output;
  bool sha256 = false;
  bool stat = false;
  bool json = false;
};

std::string read_key(const std::string& argument) {
  std::string key = argument;
  const bool from_stdin = argument.empty() || argument == "-";
  if (from_stdin || argument.starts_with('@')) {
    if (from_stdin && ::isatty(STDIN_FILENO) == 1) say("reading the key from the terminal");
    key = read_key_file(from_stdin ? "-" : argument.substr(1));
  } else {
    say("the key was an argument, which other users can see for a moment: "
        "give it on stdin, or as @FILE");
  }
  // Editors and echo end a line; some programs write the key's NUL too.
  key.resize(key.find_last_not_of(std::string_view(" \t\r\n\0", 5)) + 1);
  if (key.empty()) throw Failure{EINVAL, "there is no key: the input is empty"};
  return key;
}

// An imported range, closed on the way out.
class Import {
 public:
  explicit Import(const std::string& key) : key_(key) {
    require("opening", ::aclrtIpcMemImportByKey(&base_, key_.c_str(),
                                                ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS));
    open_ = true;
    void* base = nullptr;
    require("measuring", ::aclrtMemGetAddressRange(base_, &base, &size_));
    require("naming the key", ::hufuIpcMemGetPublicId(key_.c_str(), public_id_.data()));
  }
  ~Import() {
    if (open_) ::aclrtIpcMemClose(key_.c_str());
  }
  Import(const Import&) = delete;
  Import& operator=(const Import&) = delete;

  const void* base() const { return base_; }
  // Exactly what the exporter named: a file's size, not its pages'.
  std::span<const std::byte> bytes() const { return {static_cast<std::byte*>(base_), size_}; }
  std::string_view public_id() const { return public_id_.data(); }

 private:
  std::string key_;
  void* base_ = nullptr;
  std::size_t size_ = 0;
  std::array<char, HUFU_PUBLIC_ID_SIZE> public_id_{};
  bool open_ = false;
};

std::string sha256_of(std::span<const std::byte> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (::EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, ::EVP_sha256(), nullptr) !=
      1) {
    throw Failure{ENOTSUP, "libcrypto has no SHA-256"};
  }
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex += fmt::format("{:02x}", digest[i]);
  }
  return hex;
}

void show(const Options& options, const Import& opened) {
  aclrtPtrAttributes attributes{};
  require("asking for the page size", ::aclrtPointerGetAttributes(opened.base(), &attributes));
  // Only shares of this user are listed; another user's has an owner that we cannot name.
  const auto share = find_share(opened.public_id());
  const char* access = !share ? "unknown" : share->access == 1 ? "read-only" : "read-write";
  if (options.json) {
    nlohmann::json document = {{"public_id", opened.public_id()},
                               {"size", opened.bytes().size()},
                               {"page_size", attributes.pageSize},
                               {"access", access}};
    if (share) {
      document["owner"] = {
          {"pid", share->ownerPid}, {"uid", share->ownerUid}, {"name", share->ownerName}};
    }
    print_json(document);
    return;
  }
  std::string text =
      fmt::format("size       {} bytes ({})\npage size  {}\naccess     {}\npublic id  {}\n",
                  opened.bytes().size(), human_size(opened.bytes().size()),
                  human_size(attributes.pageSize), access, opened.public_id());
  text += share ? fmt::format("owner      pid {} ({}), uid {}\n", share->ownerPid,
                              printable(share->ownerName), share->ownerUid)
                : std::string("owner      unknown (another user)\n");
  print(text);
}

int open(const Options& options) {
  const std::string key = read_key(options.key);
  const Device device(0);
  const Import opened(key);
  if (!options.output.empty()) {
    write_bytes(options.output, opened.bytes());
    if (options.json && options.output != "-") {
      print_json({{"public_id", opened.public_id()},
                  {"size", opened.bytes().size()},
                  {"output", options.output}});
    }
  } else if (options.sha256) {
    const std::string hex = sha256_of(opened.bytes());
    if (options.json) {
      print_json(
          {{"public_id", opened.public_id()}, {"size", opened.bytes().size()}, {"sha256", hex}});
    } else {
      print(fmt::format("{}  {}\n", hex, opened.public_id()));
    }
  } else {
    show(options, opened);
  }
  return kOk;
}

void overwrite(std::span<char*> arguments, std::string_view secret) {
  for (char* argument : arguments) {
    if (secret == argument) std::memset(argument, '*', secret.size());
  }
}

}  // namespace

void add_open(CLI::App& program, Action& chosen, std::span<char*> arguments) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      program.add_subcommand("open", "Import a key: write the bytes, hash them, or describe them");
  command->footer(kFooter);
  command->add_option(
      "KEY", options->key,
      "@FILE, or - (the default) for stdin; the key itself works, but `ps` shows it");
  auto* output =
      command->add_option("-o,--output", options->output, "Write the bytes here; - is stdout");
  auto* sha256 = command->add_flag("--sha256", options->sha256, "Print the SHA-256 of the bytes")
                     ->excludes(output);
  command->add_flag("--stat", options->stat, "Print size, page size, access and owner")
      ->excludes(output)
      ->excludes(sha256);
  command->add_flag("--json", options->json, kJsonHelp);
  command->callback([options, arguments, &chosen] {
    if (!options->key.starts_with('@') && options->key != "-") overwrite(arguments, options->key);
    chosen = [options] { return open(*options); };
  });
}

}  // namespace hufu::cli
