#ifndef HUFU_HUFU_HUFU_H_
#define HUFU_HUFU_HUFU_H_

// What Hufu adds to the acl interface: read-only shares, who holds what, pools shared between
// processes, why a range cannot be exported, host tasks on any stream, the broker. C11 and C++11.
//
// The rules of acl_rt.h hold here too. Every out-struct begins with its size: the caller sets
// structSize to sizeof of the struct it was compiled with, and the library fills no more than that,
// so that a struct may grow at its end.
//
// A key is a secret; its public id is not. Logs, errors and listings name a share by its public id.

#include "acl/acl_base.h"
#include "acl/acl_rt.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// An address that no live allocation, import or mapping of this process holds. Under
// HUFU_STRICT=cann the code of the acl function's contract is returned instead.
#define ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED 200100

// May be OR-ed into the flags of aclrtIpcMemGetExportKey: importers map the memory read-only.
#define HUFU_IPC_MEM_EXPORT_FLAG_READ_ONLY 0x100UL

#define HUFU_PUBLIC_ID_SIZE 33  // 32 hexadecimal digits and a NUL

// ---- Shares

// Writes the public id of a key. Asks nobody: it is a hash of the key's text. 107000 for a text
// that no key can have.
ACL_FUNC_VISIBILITY aclError hufuIpcMemGetPublicId(const char* key,
                                                   char publicId[HUFU_PUBLIC_ID_SIZE]);

// As aclrtIpcMemSetImportPid for a process that the caller holds a pidfd of, which is safe against
// reuse of its pid. Needs Linux 6.9: 207000 below, use aclrtIpcMemSetImportPid there. 107000 when
// pidfd is not one.
ACL_FUNC_VISIBILITY aclError hufuIpcMemSetImportPidfd(const char* key, int pidfd);

typedef struct hufuShareInfo {
  size_t structSize;
  char publicId[HUFU_PUBLIC_ID_SIZE];
  int32_t ownerPid;
  uint32_t ownerUid;
  char ownerName[17];  // as in /proc/PID/comm
  uint64_t size;       // bytes, as the exporter asked
  uint64_t offset;     // bytes from the start of the block
  uint32_t pageSize;   // bytes
  uint32_t access;     // 1 read-only, 3 read-write
  uint32_t pidValidation;
  uint32_t listedPids;
  uint32_t importers;  // processes that have it mapped now
  uint64_t ageNs;
  uint64_t imports;  // so far, also by processes that have let go since
} hufuShareInfo;

// The live shares that the broker lets this user see. Writes at most capacity entries, out may be
// null when that is 0; *count is how many there are. The caller sets structSize in out[0].
ACL_FUNC_VISIBILITY aclError hufuShareList(hufuShareInfo* out, size_t capacity, size_t* count);

typedef struct hufuIpcMemInfo {
  size_t structSize;
  uint64_t size;       // bytes
  uint32_t pageSize;   // bytes
  uint32_t access;     // 1 read-only, 3 read-write
  uint32_t live;       // 1 while new imports can succeed
  uint32_t importers;  // processes that have it mapped now
  int32_t ownerPid;
  uint32_t pending;  // 1: closed by this process, mapped until work that it queued is over
} hufuIpcMemInfo;

// Many ranges, keys or closes with few round trips. Each is what the single call makes of it, in
// order, with the same checks, records and code, which goes to codes[i] (codes may be null); one
// that fails does not keep the next from being done. The call returns the first code that is not 0.
// keys[i] and ptrs[i] are written where codes[i] is 0. 100000 when a table is null, and nothing is
// done; with a count of 0 nothing is looked at.
//
// The single calls are aclrtIpcMemGetExportKey, aclrtIpcMemImportByKey and aclrtIpcMemClose.
ACL_FUNC_VISIBILITY aclError hufuIpcMemExportBatch(void* const* ptrs, const size_t* sizes,
                                                   char (*keys)[65], aclError* codes, size_t count,
                                                   uint64_t flags);
ACL_FUNC_VISIBILITY aclError hufuIpcMemImportBatch(void** ptrs, const char* const* keys,
                                                   aclError* codes, size_t count, uint64_t flags);
ACL_FUNC_VISIBILITY aclError hufuIpcMemCloseBatch(const char* const* keys, aclError* codes,
                                                  size_t count);

// The state of one key, for its exporter and its importers. 507899 for anybody else, and when it is
// over: ended, and held by nobody.
ACL_FUNC_VISIBILITY aclError hufuIpcMemQuery(const char* key, hufuIpcMemInfo* info);

// Returns when no process has the key imported, at once when none has; an exporter that imported
// its own key counts too. For the exporter and importers, also after the key was closed by its
// exporter. timeout in milliseconds, -1 is for ever; 507012 when it has passed. Not from inside a
// callback: 100000.
ACL_FUNC_VISIBILITY aclError hufuIpcMemWaitReleased(const char* key, int32_t timeout);

typedef enum hufuIpcMemEvent {
  HUFU_IPC_MEM_EXPORTER_GONE = 1,
  HUFU_IPC_MEM_REVOKED = 2,
  HUFU_IPC_MEM_LAST_IMPORTER_LEFT = 3,
  HUFU_IPC_MEM_IMPORTED = 4,     // by a process that had not imported it
  HUFU_IPC_MEM_EXPORT_ENDED = 5  // closed or freed by the exporter, or the broker has ended
} hufuIpcMemEvent;

typedef void (*hufuIpcMemCallback)(const char* publicId, hufuIpcMemEvent event, void* arg);

// Calls fn from a thread of the library when something happens to the key, for its exporter and its
// importers; another fn replaces it. One event comes after another, for all keys of the process;
// publicId is valid during the call. fn may call any function but hufuIpcMemWaitReleased; a slow
// one delays the others. It may be called while the process ends: what arg points to must last so
// long.
//
// A null fn ends it: when that returns, fn does not run any more and never will, unless it was
// called from inside fn. It also ends with the importer's last close, which does not wait for a
// running fn, and when there is nothing more to be told: the export has ended and nobody holds it.
// Events while the connection was broken are told late, and several of one sort as one.
ACL_FUNC_VISIBILITY aclError hufuIpcMemSetCallback(const char* key, hufuIpcMemCallback fn,
                                                   void* arg);

// ---- Pools shared between processes (acl/acl_rt_memory_soma.h)
//
// Sharing a pool shares all of it: every allocation, also later ones, and what lies between them.
// Who imported it read-write can change all of it; a pool is one domain of trust. After that, a
// pointer goes from one process to the other as 64 bytes, in any way they like: neither side calls
// the broker or the kernel for it.
//
// What the exporter has freed and trimmed reads zeros for an importer that still has the address.
// An importer should touch no more than what it was told of: reading where the exporter has no
// memory yet takes memory, which counts as the pool's.

// handleType is ACL_MEM_HANDLE_TYPE_NONE. flags is 0, or
// ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION for no whitelist (else:
// aclrtMemSetPidToShareableHandle), with HUFU_IPC_MEM_EXPORT_FLAG_READ_ONLY added for importers
// that may only read; such a pool keeps the memory that it ever had and cannot be trimmed. A pool
// has one handle; the same flags give it again. The handle ends with the pool.
ACL_FUNC_VISIBILITY aclError aclrtMemPoolExportToShareableHandle(aclrtMemPool memPool,
                                                                 aclrtMemHandleType handleType,
                                                                 uint64_t flags,
                                                                 uint64_t* shareableHandle);

// The pool as its exporter made it, to be ended with aclrtMemPoolDestroy; nothing can be allocated
// from it here. deviceId is a device of this process. 107017 for a handle that no living pool has,
// 507899 when this process may not import it.
ACL_FUNC_VISIBILITY aclError aclrtMemPoolImportFromShareableHandle(uint64_t shareableHandle,
                                                                   int32_t deviceId,
                                                                   aclrtMemPool* memPool);

typedef struct aclrtMemPoolPtrExportData {
  unsigned char reserved[64];
} aclrtMemPoolPtrExportData;

// ptr starts an allocation of a pool that was exported. 507000 when its pool was not.
ACL_FUNC_VISIBILITY aclError aclrtMemPoolExportPointer(void* ptr,
                                                       aclrtMemPoolPtrExportData* exportData);

// The same allocation, as large as the exporter's pool made it. Freed with aclrtFree or
// aclrtMemPoolFreeAsync, as often as it was imported; that is this process's business alone, and
// either side may free first. 107000 for bytes that are not a pointer into this pool, 507899 when
// the exporter has destroyed the pool or is gone.
ACL_FUNC_VISIBILITY aclError aclrtMemPoolImportPointer(aclrtMemPool memPool,
                                                       const aclrtMemPoolPtrExportData* exportData,
                                                       void** ptr);

// ---- Usage

typedef struct hufuUsageInfo {
  size_t structSize;
  int32_t pid;
  uint32_t uid;
  char name[17];  // as in /proc/PID/comm
  uint32_t device;
  uint64_t charged;  // bytes of its blocks there, by the broker's books
  // What the process says of itself; bytes where nothing else is said.
  uint64_t requested;      // asked for in blocks
  uint64_t reserved;       // what those blocks take: reserved - requested is lost to rounding
  uint64_t blocks;         // how many
  uint64_t pieces;         // small requests, rounded
  uint64_t chunks;         // what those are cut from
  uint64_t warm;           // freed blocks, kept for reuse
  uint64_t spare;          // blocks made ahead
  uint64_t hugeFallbacks;  // how many blocks so far were to be of huge pages and are of small ones
} hufuUsageInfo;

// What this user's processes use, one entry for each process and device that it uses; root sees
// all. Writes at most capacity entries, out may be null when that is 0; *count is how many there
// are. The caller sets structSize in out[0].
ACL_FUNC_VISIBILITY aclError hufuUsageList(hufuUsageInfo* out, size_t capacity, size_t* count);

// ---- Exportability

typedef struct hufuExportability {
  size_t structSize;
  int exportable;
  aclError wouldReturn;  // what aclrtIpcMemGetExportKey would return for this range
  void* blockBase;       // the allocation that holds the range, null if none does
  size_t blockSize;      // bytes
  size_t page;           // bytes: what the start of an exportable range is aligned to
  const char* reason;    // why not and what to do instead; null when exportable; valid until the
                         // thread's next call
} hufuExportability;

// Says whether [ptr, ptr + size) can be exported, and why not, without exporting it.
ACL_FUNC_VISIBILITY aclError hufuMemQueryExportable(const void* ptr, size_t size,
                                                    hufuExportability* out);

// ---- Work

// Returns 0, or the device exception code with which the stream is to fail.
typedef int32_t (*hufuHostTask)(void* arg);

// Queues a function as if it were a device program. Unlike aclrtLaunchHostFunc it goes with
// subscribed streams, and it can fail.
ACL_FUNC_VISIBILITY aclError hufuLaunchHostTask(aclrtStream stream, hufuHostTask fn, void* arg);

// ---- The broker

typedef struct hufuBrokerInfo {
  size_t structSize;
  char address[108];
  int32_t pid;
  uint32_t uid;
  uint32_t mode;       // 0 none, 1 personal, 2 system
  char auditDir[256];  // HUFU_AUDIT_DIR; empty if unset: then `hufu audit path` knows
  uint32_t devices;
  uint64_t deviceCapacity;  // bytes, each
} hufuBrokerInfo;

// The broker this process uses; connects, and so starts a personal one, if need be.
ACL_FUNC_VISIBILITY aclError hufuGetBrokerInfo(hufuBrokerInfo* info);

#ifdef __cplusplus
}
#endif

#endif  // HUFU_HUFU_HUFU_H_
