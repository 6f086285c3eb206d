/* Apportion: device memory from the broker, under a job's guarantee and limit.
 *
 * Link libapportion.so (the CUDA driver is loaded at run time, and no CUDA header is needed here), attach to
 * a job, and allocate. Memory is device memory of the broker's GPU, mapped readable and writable into this
 * process; pointers work wherever a CUdeviceptr or the result of cudaMalloc does, but for cudaIpc (ask for
 * APPORTION_EXACT where a library needs one driver handle: RDMA registration, NCCL buffers). In a job with
 * transport = "ipc" memory comes as slabs opened from cudaIpc handles: there an exact block has no handle
 * that can be exported, memory belongs to the context that was current at the first allocation (else to the
 * primary one) and that context must live to the end of the session, and a slab goes back only as a whole.
 *
 * Units: every size is in bytes. Blocks are aligned to 512 bytes and rounded up to a multiple of them.
 * Errors: every function answers an apportion_status; apportion_last_error() has one line of text for the
 * last one on the calling thread. After an error nothing has changed, unless the text says so. Out-parameters
 * are then untouched. Threads: every function may be called from any thread at any time, but for
 * apportion_detach, which is the last call on its session. Calls wait for each other only for as long as one
 * needs the driver or the broker. Signals: a handler that interrupted a call of this library gets what the
 * arena has room for, else APPORTION_BUSY, and never deadlocks. Growth uses malloc and is not for handlers
 * that may have interrupted malloc elsewhere. Each session has one thread of the library's, which sleeps
 * until the broker asks for memory that is idle, or some has been idle for the config's `idle_return`, and
 * then gives it back; all signals are blocked on it. fork:
 * the child is not attached. Its calls answer APPORTION_NOT_ATTACHED, and the parent notices nothing. CUDA
 * itself does not survive fork: exec, or start workers with spawn. exec: nothing is passed on. Broker gone:
 * what is held stays usable, and allocations that fit into it go on; more answers APPORTION_DISCONNECTED.
 * With transport = "ipc" what is held is gone too, and every allocation answers so. Stability: names, values
 * and layouts here only grow. Structures begin with their size, as the caller knows them: of figures, as much
 * is filled as both sides know, and struct_size then says how much; an option that the library does not know
 * is refused unless it is all zero.
 */
#ifndef APPORTION_APPORTION_H
#define APPORTION_APPORTION_H

#include <stddef.h>
#include <stdint.h>

#if defined(APPORTION_BUILD)
#define APPORTION_API __attribute__((visibility("default")))
#else
#define APPORTION_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define APPORTION_VERSION_MAJOR 0
#define APPORTION_VERSION_MINOR 1

/* A session. Opaque; never a pointer to anything. A value that was detached stays invalid for ever. */
typedef struct apportion_client apportion_client;

/* A CUDA stream: the same type as CUstream and cudaStream_t. NULL is the legacy default stream. */
typedef struct CUstream_st* apportion_stream;

typedef enum apportion_status {
  APPORTION_OK = 0,
  APPORTION_INVALID = 1,   /* an argument is wrong: 0 bytes, a pointer that is no live block */
  APPORTION_NOT_FOUND = 2, /* no broker, no such job, or its device is not visible to this process */
  APPORTION_DENIED = 3,    /* it exists, and this user may not have it */
  APPORTION_QUOTA = 4,     /* above the job's limit, or not to be had now; the text says who holds the rest */
  APPORTION_OUT_OF_MEMORY = 5, /* the device, its addresses or the host have no room */
  APPORTION_DRIVER = 6,        /* the CUDA driver answered an error; the text has its name and number */
  APPORTION_SYSTEM = 7,        /* a system call failed: out of file descriptors, for example */
  APPORTION_PROTOCOL = 8,      /* the broker is of another version */
  APPORTION_DISCONNECTED = 9,  /* the broker is gone; or, with transport = "ipc", memory of this session is:
                                  the text says how much, and these blocks must be freed to go on */
  APPORTION_NOT_ATTACHED = 10, /* no session: never attached, detached, or a forked child */
  APPORTION_BUSY = 11,     /* try again: a stream is being captured, or a signal handler interrupted a call */
  APPORTION_TIMED_OUT = 12 /* the broker did not answer in time */
} apportion_status;

/* "APPORTION_QUOTA" and so on; "unknown" for other values. Never NULL. */
APPORTION_API const char* apportion_status_name(apportion_status status);

/* One line for a person about the last error on this thread; "" before the first. Valid until the next call
 * of this library on this thread. Never NULL. */
APPORTION_API const char* apportion_last_error(void);

/* "0.1.0". */
APPORTION_API const char* apportion_version(void);

/* The session promises to give idle memory back when the broker asks. It is then told the job's limit as
 * total instead of its guarantee, and may borrow what other jobs do not use. */
#define APPORTION_RECLAIMABLE 1u

typedef struct apportion_attach_options {
  size_t struct_size; /* sizeof(apportion_attach_options) */
  const char* job;    /* NULL: the environment's APPORTION_JOB, else the config's [jobs.default] */
  const char* socket; /* absolute path of the broker's socket or of its folder; NULL: APPORTION_SOCKET, else
                         the default places */
  const char* label;  /* for people who look at `apportion status`; NULL: the program's name */
  uint32_t flags;     /* APPORTION_RECLAIMABLE, or 0 */
} apportion_attach_options;

/* Joins a job. options may be NULL. One process may attach several times; each is a session of its own, at
 * most 64 at a time (APPORTION_BUSY). Takes no device memory yet. Errors: NOT_FOUND, listing every path tried
 * and the command that starts a broker; DENIED; INVALID; DRIVER; PROTOCOL; TIMED_OUT. */
APPORTION_API apportion_status apportion_attach(const apportion_attach_options* options,
                                                apportion_client** client);

/* Waits for the GPU, unmaps everything, live blocks included, and gives it back. BUSY: a stream is being
 * captured, and the session goes on. After any other answer the session is over; after DRIVER what could not
 * be unmapped stays charged until this process ends. */
APPORTION_API apportion_status apportion_detach(apportion_client* client);

/* The block is one driver handle of its own, rounded up to the driver's granularity (2 MiB): for RDMA
 * registration and for libraries that ask for the handle. It comes from the broker and goes back to it at
 * once when it is freed. */
#define APPORTION_EXACT 1u

/* A block that work on `stream` may use at once; work on other streams must be ordered after it, as with
 * cudaMallocAsync. While there is room no driver call, system call or message is made; else chunks are
 * leased, and within the job's guarantee that may wait as long as the config's `wait`. flags:
 * APPORTION_EXACT, or 0. Errors: INVALID (0 bytes); QUOTA; OUT_OF_MEMORY; BUSY; DRIVER; SYSTEM; DISCONNECTED;
 * TIMED_OUT; NOT_ATTACHED. */
APPORTION_API apportion_status apportion_allocate(apportion_client* client, size_t bytes,
                                                  apportion_stream stream, uint32_t flags, void** pointer);

/* Frees a block. Its last use, on whatever stream, must be ordered before `stream`'s work so far. It is
 * reused on `stream` at once, elsewhere only after the GPU has passed that point of it. NULL does nothing.
 * Errors: INVALID (freed twice, or not from this session); BUSY; NOT_ATTACHED; of an exact block also DRIVER:
 * then it is lost. */
APPORTION_API apportion_status apportion_deallocate(apportion_client* client, void* pointer,
                                                    apportion_stream stream);

/* Call before a stream is destroyed: its handle must not be asked any more how far it is, and a new stream
 * may get it and must not inherit its frees. Where another thread waits for the GPU inside this library, the
 * call returns when that wait is over. Errors: BUSY (then do not destroy it yet); NOT_ATTACHED. */
APPORTION_API apportion_status apportion_stream_gone(apportion_client* client, apportion_stream stream);

/* What a captured graph uses. 0 is none; a value that was released stays invalid for ever. */
typedef uint64_t apportion_graph_pool;

/* Call right before cuStreamBeginCapture on `stream`. From here on, blocks allocated or freed on it are the
 * pool's: a graph will write them when it is launched, so after they were freed they go to no other stream,
 * and their memory stays mapped, until the pool is released. Within the capture, and in later ones with the
 * same pool, they are used again; such graphs must run one after the other, in the order of their captures.
 * *pool: 0 for a new one, which is then set; else one of this session that no capture is bound to. A side
 * stream that joins a capture needs a pool of its own. Until the end, nothing of this session synchronises
 * the context: apportion_trim_to, and freeing an exact block, answer BUSY. A wait for the GPU that another
 * thread has begun is waited for first. Without this call, the arena does not know of a capture. Blocks with
 * APPORTION_EXACT have no pool: free them when the graph is gone. Errors: INVALID (a default stream, a stream
 * that is bound, no such pool); BUSY (the pool is bound; too many pools); OUT_OF_MEMORY; NOT_ATTACHED. */
APPORTION_API apportion_status apportion_graph_pool_begin(apportion_client* client, apportion_stream stream,
                                                          apportion_graph_pool* pool);

/* Call after cuStreamEndCapture, failed or not. Errors: INVALID (no pool is bound to the stream). */
APPORTION_API apportion_status apportion_graph_pool_end(apportion_client* client, apportion_stream stream);

/* Call when the graphs captured with the pool are destroyed or will never be launched again. What they used
 * becomes free after a synchronise; blocks that are live still are as any other. Errors: INVALID (no such
 * pool); BUSY (a capture is bound to it). */
APPORTION_API apportion_status apportion_graph_pool_release(apportion_client* client,
                                                            apportion_graph_pool pool);

/* Leases and maps chunks until the session holds at least `bytes`, live blocks included, so that a program
 * that would not fit fails when it starts instead of in the middle of its work. What is allocated up to that
 * asks the broker for nothing any more; rounding and fragmentation need a little more (2 % on training).
 * Within the guarantee the call may wait as long as the config's `wait`. The memory is charged to the job
 * from here on, and stays until apportion_trim_to gives it back, or the broker asks for what is idle of it
 * (of what was reserved, only from sessions with APPORTION_RECLAIMABLE). Errors: QUOTA; OUT_OF_MEMORY; BUSY;
 * DRIVER; SYSTEM; DISCONNECTED; TIMED_OUT; NOT_ATTACHED. Then nothing has been taken. */
APPORTION_API apportion_status apportion_reserve(apportion_client* client, size_t bytes);

/* Gives back chunks without a live block, wherever they lie, until no more than `bytes` are mapped; 0: all of
 * them. *returned (may be NULL): bytes given back. Waits for the GPU: for the work of the current context and
 * of the device's primary one, so a program with further contexts of its own synchronises them first, and one
 * that captures a non-blocking stream trims when the capture has ended. Errors: BUSY (nothing was given
 * back); DRIVER (some may have been; apportion_get_stats says what is mapped). */
APPORTION_API apportion_status apportion_trim_to(apportion_client* client, size_t bytes, size_t* returned);

/* How memory comes. VMM: chunks, mapped one beside the other. IPC: slabs, opened from cudaIpc handles; what
 * is different then stands in docs/arena.md, "Slabs". */
#define APPORTION_TRANSPORT_VMM 0u
#define APPORTION_TRANSPORT_IPC 1u

typedef struct apportion_info {
  size_t struct_size;       /* sizeof(apportion_info), set by the caller */
  uint64_t total_bytes;     /* what this program should plan with, in place of cudaMemGetInfo's total */
  uint64_t free_bytes;      /* total - used of the job, never below 0. Other jobs do not move these two */
  uint64_t guarantee_bytes; /* what the job can always get */
  uint64_t in_force_bytes;  /* of it, in force now */
  uint64_t covered_bytes;   /* of it, what the pool can meet now */
  uint64_t limit_bytes;     /* what the job can never exceed */
  uint64_t used_bytes;      /* by all sessions of the job */
  uint64_t charged_bytes;   /* used, idle, and on its way back */
  uint64_t chunk_bytes;     /* unit of lease */
  uint64_t session_id;      /* as `apportion status` shows it */
  uint32_t simulated;       /* 1: a simulated device */
  uint32_t transport;       /* APPORTION_TRANSPORT_VMM or _IPC, by the job's config */
  char job[64];
  char device_uuid[48];
  char device_name[96];
} apportion_info;

/* The job's quota, from shared memory: no message, no driver call. */
APPORTION_API apportion_status apportion_get_info(apportion_client* client, apportion_info* info);

/* Names as in JAX's Device.memory_stats(). Of this session. */
typedef struct apportion_stats {
  size_t struct_size;         /* sizeof(apportion_stats), set by the caller */
  uint64_t num_allocs;        /* allocations that succeeded, ever (count) */
  uint64_t bytes_in_use;      /* live blocks */
  uint64_t peak_bytes_in_use; /* small blocks that a thread takes from its magazines are seen late */
  uint64_t largest_alloc_size;
  uint64_t bytes_limit;    /* the total this program was told */
  uint64_t bytes_reserved; /* leased and mapped */
  uint64_t peak_bytes_reserved;
  uint64_t bytes_reservable_limit; /* addresses of the arena */
  uint64_t largest_free_block_bytes;
  uint64_t pool_bytes; /* leased */
  uint64_t peak_pool_bytes;
  uint64_t live_blocks;     /* (count) */
  uint64_t cached_bytes;    /* mapped, in no live block */
  uint64_t idle_bytes;      /* chunks with no live block: what apportion_trim_to(0) gives back, and more where
                               threads keep the last blocks of a chunk in their magazines */
  uint64_t pending_bytes;   /* cached, and waiting for a synchronise before another stream may have it */
  double fragmentation;     /* (free - largest free block) / free, in 0..1 */
  uint64_t arena_hits;      /* allocations served in the arena (count) */
  uint64_t arena_misses;    /* allocations that needed the driver or the broker (count) */
  uint64_t synchronizes;    /* (count) */
  uint64_t growths;         /* (count) */
  uint64_t chunks_leased;   /* (count) */
  uint64_t chunks_moved;    /* idle chunks mapped elsewhere instead of leasing new ones (count) */
  uint64_t chunks_returned; /* (count) */
  uint64_t magazine_hits;   /* allocations served by the calling thread's magazines, without a lock (count) */
  uint64_t magazine_bytes;  /* of cached_bytes: kept by threads for their next small blocks */
  uint64_t graph_pool_bytes; /* of cached_bytes: kept for captured graphs until their pools are released */
  uint64_t events;           /* recorded to wait for what a single stream has freed (count) */
} apportion_stats;

APPORTION_API apportion_status apportion_get_stats(apportion_client* client, apportion_stats* stats);

/* Verifies every invariant of the session's arena. Slow; for tests and bug reports. INVALID with the broken
 * rule. */
APPORTION_API apportion_status apportion_check(apportion_client* client);

#ifdef __cplusplus
}
#endif

#endif
