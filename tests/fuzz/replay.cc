// Runs a fuzz target on the files of a folder, and on nothing at all, where libFuzzer is not
// linked: with g++, and under the sanitizers of the test presets. A finding is a crash.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  LLVMFuzzerTestOneInput(nullptr, 0);
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
    std::printf("%s (%zu bytes)\n", entry.path().c_str(), bytes.size());
    std::fflush(stdout);  // the last line names the culprit
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    ++count;
  }
  if (count == 0) {
    std::fprintf(stderr, "%s holds no input: this replays nothing\n", argv[1]);
    return 1;
  }
  return 0;
}
