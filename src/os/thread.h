#pragma once

// A thread of the library inside somebody else's program: it has a name that says whose it is, and
// it is deaf to every signal, so that the program's handlers run where the program expects them.

#include <functional>
#include <thread>

#include "base/result.h"

namespace hufu::os {

// `name` as in /proc/PID/task/TID/comm: at most 15 bytes. Fails when the process may have no more
// threads.
Result<std::thread> start_thread(const char* name, std::function<void()> body);

}  // namespace hufu::os
