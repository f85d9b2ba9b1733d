#pragma once

// Starting a personal broker.
//
//   this process ── clone ──▶ child ── setsid, clone ──▶ hufud --socket PATH --ready-fd 3
//        │                      └─ exits, is reaped        │
//        └────── reads "ready" or the failure's text ◀─────┘
//
// hufud must outlive this process and owe it nothing: a session of its own, no terminal, none of
// our descriptors (a broker that held our pipe's end would keep `client | less` from ending), none
// of our signal dispositions, limits or variables. It must also be the right program, because it
// will decide about this user's memory: owned by root or this user, writable by nobody else.

#include <string>

#include "base/result.h"
#include "share/address.h"

namespace hufu::share {

// Returns when the broker listens at `address.path` (also when another starter was faster), or with
// what hufud said when it could not.
Result<void> start_broker(const BrokerAddress& address);

// HUFU_HUFUD, else ../bin/hufud beside this library, else the installed one; checked.
Result<std::string> find_broker_program();

}  // namespace hufu::share
