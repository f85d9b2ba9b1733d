"""The checks that Hufu lives by, and for each the test that must fail without it.

A mutant is one replacement in one file: `old` must stand there exactly once. What replaces it takes
the check away and leaves a program that compiles. `program` and `cases` (a gtest filter) name the
test that tells. Write the smallest mutant that a tired colleague could commit by mistake.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    name: str
    removes: str
    file: str
    old: str
    new: str
    program: str
    cases: str


MUTANTS = (
    Mutant(
        "alignment", "an export may start anywhere, not only at a page",
        "src/policy/decide.cc",
        "if (!is_aligned(request.offset, page)) {", "if (false) {",
        "policy_decide_test", "*"),
    Mutant(
        "range", "an export may reach beyond the block",
        "src/policy/decide.cc",
        "|| end > limit ||", "||",
        "policy_decide_test", "*"),
    Mutant(
        "uid", "any user may import",
        "src/policy/decide.cc",
        "return no(Reason::kOtherUser, importer.uid, exporter.uid);", "return {};",
        "policy_decide_test", "*"),
    Mutant(
        "whitelist", "a process that is not listed may import",
        "src/policy/decide.cc",
        "if (share.any_process) return {};",
        "if (share.any_process || importer.pid != 0) return {};",
        "policy_decide_test", "*"),
    Mutant(
        "read-only", "another user gets what the export grants, not read-only memory",
        "src/policy/decide.cc",
        "const Access most = other_user ? Access::kReadOnly : share.access;",
        "const Access most = share.access;",
        "policy_decide_test", "*"),
    Mutant(
        "same-process", "a pid that was used again is the process that was listed",
        "src/policy/decide.cc",
        "return process.pidfs_inode == entry.pidfs_inode;", "return process.pid == entry.pid;",
        "policy_decide_test", "*"),
    Mutant(
        "key-tag", "a key is opened without comparing its tag",
        "src/broker/key_seal.cc",
        "if (opened != 0) return std::nullopt;", "(void)opened;",
        "broker_key_seal_test", "Key.EveryChangedBitIsRefused"),
    Mutant(
        "key-form", "a key has more than one text",
        "src/broker/key_seal.cc",
        "if ((seen & 64U) != 0) return std::nullopt;", "(void)seen;",
        "broker_key_seal_test", "KeyText.*"),
    Mutant(
        "silent", "a user may have any number of connections that say nothing",
        "src/broker/core_sessions.cc",
        "if (silent >= options_.limits.silent_per_uid) {", "if (false) {",
        "broker_core_test", "Quota.OfSilentConnectionsIsTheUsersAndOnlyOfThose"),
    Mutant(
        "doubt", "who has just ended is said to hold memory still",
        "src/broker/core_imports.cc",
        "if (proof && claim.empty() && may_doubt(*proof)) {", "if (false) {",
        "broker_core_test", "Broker.WhoHasJustEndedIsAskedAboutAgain"),
    Mutant(
        "ahead-access", "an importer gets the file that is open, whatever it was granted",
        "src/broker/core_imports.cc",
        "if (!block.ahead || block.ahead->access() != access)", "if (!block.ahead)",
        "broker_core_test", "Broker.TheFileOfAReadOnlyWishIsReadOnly"),
    Mutant(
        "sigbus", "a log that is cut short under its writer ends the broker",
        "src/os/mapped_file.cc",
        "    ::siglongjmp(*t_way_out, 1);", "",
        "os_mapped_file_test", "MappedFile.AFileThatWasCutOffIsAnErrorEachTime"),
    Mutant(
        "record-before-grant", "what could not be recorded is granted",
        "src/broker/core_imports.cc",
        "  if (!recorded(record)) {\n    std::vector<UniqueFd> gone;\n    if (!repeat)",
        "  if (!recorded(record) && false) {\n    std::vector<UniqueFd> gone;\n    if (!repeat)",
        "broker_core_test", "Broker.GrantsNothingThatItCannotRecord"),
    Mutant(
        "sender", "a message counts for the process that connected, whoever sent it",
        "src/broker/core.cc",
        "if (sender.pid != connected.pid || sender.uid != connected.uid) {", "if (false) {",
        "broker_core_test", "Broker.AnotherSendersCredentialsEndTheConnection"),
    Mutant(
        "owner", "any session may export a block whose number it knows",
        "src/broker/core_exports.cc",
        "  if (block == nullptr || block->owner != asking.session.id) {\n"
        "    return refused(refuse(asking, audit::Type::kExport,",
        "  if (block == nullptr) {\n    return refused(refuse(asking, audit::Type::kExport,",
        "broker_core_test", "Broker.AnotherSessionsBlockIsUnknown"),
    Mutant(
        "capacity", "a device has no end",
        "src/broker/core_blocks.cc",
        "__builtin_add_overflow(asked, mint.specs[i].size, &asked)",
        "((asked += mint.specs[i].size), false)",
        "broker_core_test", "Broker.ASumThatWrapsIsNoBargain"),
    Mutant(
        "seal", "an export leaves the file's seals open",
        "src/broker/core_exports.cc",
        "if (auto sealed = os::add_seals(block.fd.get(), added); !sealed) "
        "return failed(sealed.error());", "(void)added;",
        "broker_core_test", "Broker.TheFirstExportDecidesReadOnlyForGood"),
    Mutant(
        "quota", "a session may have any number of exports",
        "src/broker/core_exports.cc",
        "if (asking.session.exported.size() >= options_.limits.exports_per_session) {",
        "if (false) {",
        "broker_core_test", "Quota.OfExportsIsTheSessionsLiveOnes"),
    Mutant(
        "quota-of-user", "a user may have any number of blocks",
        "src/broker/core_blocks.cc",
        "if (blocks + mint.count > limits.blocks_per_uid) {", "if (false) {",
        "broker_core_test", "Quota.OfBlocksIsTheUsersAndCountsFreedOnesThatAreHeld"),
    Mutant(
        "repeat", "a request that comes again is carried out again",
        "src/broker/core.cc",
        "if (request->id <= session->answered.id) {", "if (false) {",
        "broker_core_test", "Repeat.*"),
    Mutant(
        "slot-order", "what was withdrawn comes back with the broker",
        "src/broker/ledger.cc",
        "if (!share.holders.empty()) store(share);", "",
        "broker_ledger_rebuild_test", "RebuiltBooks.AreTheBooks"),
    Mutant(
        "slot-sum", "a damaged slot is believed",
        "src/broker/slots.cc",
        "header.crc != sum_of(bytes) || ", "",
        "broker_slots_test", "SlotFormat.EveryFlippedBitIsSeen"),
    Mutant(
        "probe", "a release is believed, and the kernel not asked",
        "src/os/memfd.cc",
        "if (errno == EAGAIN || errno == EBUSY) return true;",
        "if (errno == EAGAIN || errno == EBUSY) return false;",
        "os_memfd_test", "*Lease.*"),
    Mutant(
        "sigio", "whoever opens a block during a probe ends the broker",
        "src/os/event_loop.cc",
        "  (void)::signal(SIGIO, SIG_IGN);\n", "",
        "os_event_loop_test", "*"),
    Mutant(
        "generation", "a status word that is used again has the value it had before",
        "src/broker/status_board.cc",
        "wire::status_word(++generation_,", "wire::status_word(1,",
        "broker_ledger_test", "Books.AHoldersStatusWordEndsWithTheShare"),
    Mutant(
        "status-ends", "an ended export stays good for whoever holds it",
        "src/broker/status_board.cc",
        "word.store(generation | static_cast<std::uint16_t>(wire::StatusState::kEnded),",
        "word.store(generation | static_cast<std::uint16_t>(wire::StatusState::kLive),",
        "broker_ledger_test", "Books.AHoldersStatusWordEndsWithTheShare"),
    Mutant(
        "life-word", "the broker's death is not seen in what it granted",
        "src/os/published.cc",
        "bool PublishedView::writer_ended() const {",
        "bool PublishedView::writer_ended() const {\n  if (base_ != nullptr) return false;",
        "os_published_test", "*"),
    Mutant(
        "recycle-after-export", "a block that was exported is used again in its process",
        "src/memory/reserve.cc",
        "if (block.lent() == Lent::kOnce || ", "if (",
        "memory_heap_test", "HeapTest.ABlockThatWasLentIsNeverUsedAgain"),
    Mutant(
        "fork", "a child inherits what its parent imported",
        "src/os/mapping.cc",
        "  if (::madvise(place.base(), range.length, MADV_DONTFORK) != 0) {", "  if (false) {",
        "os_mapping_test", "*"),
    Mutant(
        "single-flight", "two first imports of one key are two requests",
        "src/share/imports.cc",
        "      if (entry->state == Entry::State::kOpening) {",
        "      if (entry->state == Entry::State::kOpening) break;\n"
        "      if (entry->state == Entry::State::kOpening) {",
        "share_imports_test", "AnImporter.ManyFirstOpensAreOneRequestAndOneMapping"),
    Mutant(
        "grant-word", "an import that is held is served after its export ended",
        "src/share/imports.cc",
        "if (!entry->grant.holds()) {", "if (false) {",
        "share_imports_test", "AnImporter.AnEndedExportIsNotServedFromWhatIsHeld"),
    Mutant(
        "shrinkable", "memory that can be truncated under its users is mapped",
        "src/share/client.cc",
        "if ((found & kNeeded) != kNeeded) {", "if (false) {",
        "share_client_test", "Blocks.AFileThatCouldShrinkIsNotTaken"),
    Mutant(
        "own-socket", "a descriptor that the program replaced is used as the broker's",
        "src/share/client.cc",
        "if (auto ours = check_socket(); !ours) return ours;", "",
        "share_client_test", "Descriptors.AReplacedSocketIsNamedAndNeitherWrittenNorClosed"),
    Mutant(
        "handle-form", "the key in a fabric handle opens as an ordinary key too",
        "src/broker/core_exports.cc",
        "const bool fits = contents && ((contents->flags & wire::kHandle) != 0) == handle;",
        "const bool fits = contents.has_value();",
        "broker_core_test", "Handles.OpenNothingButHandlesAndKeysNothingButKeys"),
    Mutant(
        "token-end", "a token opens its export after that has ended",
        "src/broker/ledger.cc",
        "  forget_list(share);\n  forget_token(share);\n", "  forget_list(share);\n",
        "broker_core_test", "Handles.DieWithTheirExportAndImportersKeepTheMemory"),
    Mutant(
        "charge", "a sparse block may be charged more than its device has",
        "src/broker/core_blocks.cc",
        "const bool grows = charge.bytes > block.charged;", "const bool grows = false;",
        "broker_core_test", "Sparse.AreChargedNoMoreThanTheDeviceHas"),
    Mutant(
        "end-range", "the keys of an allocation that ended open it still",
        "src/broker/core_exports.cc",
        "    if (!inside) continue;\n", "    continue;\n",
        "broker_core_test", "Sparse.EndThePartThatIsUsedForSomethingElse"),
    Mutant(
        "chain", "a record's hash does not cover the record before it",
        "src/audit/log.cc",
        "record.chain = chain_.link(link.head,", "record.chain = chain_.link(link_.head,",
        "audit_log_test", "Log.RecordsOfOneAppendFollowEachOtherAlsoAcrossSegments"),
    Mutant(
        "rows-extent", "only the first row of a rectangle has to lie in the allocation",
        "src/runtime/copy.cc",
        "__builtin_add_overflow(before, rows.width, &all)",
        "__builtin_add_overflow(before - before, rows.width, &all)",
        "capi_copies_test", "Rows.*"),
    Mutant(
        "batch-whole", "a batch is copied up to the piece that is wrong",
        "src/runtime/copy.cc",
        "      at_fault = i;\n      return fail(", "      at_fault = i;\n      if (i != 0) return all;\n      return fail(",
        "capi_copies_test", "Batches.*"),
    Mutant(
        "descriptor", "a descriptor in device memory is believed when its turn comes",
        "src/runtime/indirect.cc",
        "  if (!good) return kNoCopy;\n", "",
        "capi_copies_test", "Indirect.*"),
    Mutant(
        "vmm-leaving", "memory is mapped over what queued work still reads",
        "src/memory/reservations.cc",
        "    if (!there->second.leaving()) {", "    if (there->second.leaving()) break;\n    if (true) {",
        "memory_reservations_test", "ReservationsTest.WhatIsLeavingIsDeadForCallsAndStillThereForWork"),
    Mutant(
        "vmm-no-access", "a copy goes where nothing may be touched yet",
        "src/runtime/range_check.cc",
        "if (region->access == Access::kNone) {", "if (false) {",
        "capi_vmm_test", "S15.*"),
    Mutant(
        "vmm-released", "a range is released from under what is mapped in it",
        "src/memory/reservations.cc",
        "    if (mapping.leaving()) continue;\n", "    if (!mapping.leaving()) continue;\n",
        "memory_reservations_test", "ReservationsTest.ReleaseIsRefusedWhileAnythingIsMapped"),
    Mutant(
        "vmm-withdraw", "a shareable handle outlives the handle that it was made of",
        "src/runtime/physical_sharing.cc",
        "  static_cast<void>(client_.withdraw(found->second.token).has_value());\n", "",
        "ipc_vmm", "Vmm.FreeingTheHandleEndsItsShareableHandleAndNoImport"),
    Mutant(
        "pool-range", "a pointer into a shared pool may reach out of it",
        "src/memory/pool_pointer.cc",
        " || layout.offset > pool_size - layout.size ||", " ||",
        "memory_pool_pointer_test", "PoolPointer.ARangeThatIsNotInThePoolIsRefusedWithItsNumbers"),
    Mutant(
        "pool-name", "a pointer into one pool is taken for one into another",
        "src/memory/pool_pointer.cc",
        "if (layout.pool != pool) {", "if (false) {",
        "memory_pool_pointer_test", "PoolPointer.OfAnotherPoolIsNamed"),
    Mutant(
        "pool-stamp", "a stream gets memory that another one may still use",
        "src/memory/pool_space.cc",
        "if (stamp_of(span.start) > stamp) return false;", "",
        "memory_pool_test", "PoolTest.OthersHaveItWhenItsRulesAllowAndTheOrderOfWorkDoes"),
    Mutant(
        "pool-trim", "trimming takes memory that is in use",
        "src/memory/pool.cc",
        "units_[first - 1].committed && units_[first - 1].busy == 0 &&", "units_[first - 1].committed &&",
        "memory_pool_test", "PoolTest.AUnitInUseIsNotTrimmed"),
)
