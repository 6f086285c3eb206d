// What every message begins with, and the small fixed-size pieces messages are made of.
//
// Promises: everything here is trivially copyable, little-endian, without hidden padding, and pinned by
// tests/unit/shm/golden_test.cpp. Never: owns memory, fds or a socket.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace apportion::wire {

static_assert(std::endian::native == std::endian::little,
              "messages are the little-endian image of these structs");

// One datagram = one message = its fds (design section 4).
inline constexpr std::size_t kMaxDatagramBytes = 4096;
inline constexpr std::size_t kMaxFds = 128;

inline constexpr std::uint32_t kMagic = 0x31'50'50'41;  // "APP1"
// Another major is refused. A newer minor may append fields to a message; what is appended is ignored.
inline constexpr std::uint16_t kMajor = 1;
inline constexpr std::uint16_t kMinor = 1;  // 1.1: slabs

enum class Type : std::uint16_t {
  // client -> broker
  hello = 1,
  leases = 2,
  request = 3,
  grant_ack = 4,
  grant_nack = 5,
  release = 6,
  detach = 7,
  status_request = 8,
  reclaimed = 9,
  // broker -> client
  welcome = 65,
  refused = 66,
  grant = 67,
  refusal = 68,
  released = 69,
  detached = 70,
  reclaim = 71,
  status_broker = 72,
  status_jobs = 73,
  status_sessions = 74,
  status_holders = 75,
  slab_grant = 76,  // since 1.1
  slabs_lost = 77,
  // keeper <-> broker
  put = 129,
  del = 130,
  ack = 131,
  ping = 132,
  pong = 133,
  take = 134,
  ready = 135,
  // broker <-> helper
  scrub = 193,
  scrubbed = 194,
  make_slab = 195,
  slab_made = 196,
  scrub_slabs = 197,
  free_slab = 198,
  slab_freed = 199,
};

// The first 16 bytes keep this shape in every major, so that a stranger's version can always be named.
struct Header {
  std::uint32_t magic = kMagic;
  std::uint16_t major = kMajor;
  std::uint16_t minor = kMinor;
  std::uint16_t type = 0;
  std::uint16_t reserved = 0;
  std::uint32_t size = 0;        // bytes of the whole message; equals the datagram's length
  std::uint64_t request_id = 0;  // chosen by whoever asks, repeated in every answer; 0: unasked
  std::uint64_t epoch = 0;       // the broker's incarnation; 0 in HELLO
};
static_assert(sizeof(Header) == 32);

// A list longer than one message comes as parts 0 .. parts-1, in order, under one request_id.
struct Part {
  std::uint32_t part = 0;
  std::uint32_t parts = 1;
  std::uint32_t count = 0;  // records used in this message
  std::uint32_t flags = 0;  // kLast
};
static_assert(sizeof(Part) == 16);
inline constexpr std::uint32_t kLast = 1;             // no further message answers this request_id
inline constexpr std::uint32_t kMaxParts = 1u << 16;  // a list of more parts is an attack

// NUL-terminated text of at most N - 1 bytes, without control characters: it ends up in one-line logs.
template <std::size_t N>
struct Text {
  std::array<char, N> chars{};

  static constexpr std::size_t kMaxLength = N - 1;

  Text() = default;
  Text(std::string_view text) { set(text); }

  // Cuts what does not fit; control characters become '?'.
  void set(std::string_view text) {
    chars.fill('\0');
    const std::size_t length = std::min(text.size(), kMaxLength);
    for (std::size_t i = 0; i < length; ++i)
      chars[i] = is_control(text[i]) ? '?' : text[i];
  }
  // Up to the first NUL; the whole array where a hostile sender left none.
  [[nodiscard]] std::string_view view() const {
    return {chars.data(),
            static_cast<std::size_t>(std::find(chars.begin(), chars.end(), '\0') - chars.begin())};
  }
  [[nodiscard]] bool empty() const { return chars[0] == '\0'; }
  // F24: terminated, and nothing in it that could forge a line of a log or drive a terminal.
  [[nodiscard]] bool valid() const {
    const std::string_view text = view();
    return text.size() < N && std::none_of(text.begin(), text.end(), is_control);
  }

 private:
  static bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }
};

// 128 random bits from the broker; whoever shows it is that session. All zero: none.
struct Token {
  std::array<std::uint8_t, 16> bytes{};

  [[nodiscard]] bool none() const { return *this == Token{}; }
  friend bool operator==(const Token&, const Token&) = default;
};
static_assert(sizeof(Token) == 16);

// Versions of the shared pages a side was built with (shm/page.hpp).
struct LayoutVersions {
  std::uint16_t ledger_major = 0;
  std::uint16_t ledger_minor = 0;
  std::uint16_t job_page_major = 0;
  std::uint16_t job_page_minor = 0;
  std::uint16_t report_page_major = 0;
  std::uint16_t report_page_minor = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(LayoutVersions) == 16);

// One chunk (or exact-size chunk) by its id. Ids are unique within one broker lineage (kept over restarts).
struct ChunkEntry {
  std::uint64_t chunk_id = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(ChunkEntry) == 16);

// One slab by its lease's id, and its place in the job page's slab table (shm/job_page.hpp).
struct SlabPlace {
  std::uint64_t lease_id = 0;
  std::uint64_t bytes = 0;
  std::uint32_t place = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(SlabPlace) == 24);

inline constexpr std::size_t kMaxGrantChunks = kMaxFds;  // each comes with its fd
inline constexpr std::size_t kMaxIds = 480;              // ids in one RELEASE
inline constexpr std::size_t kMaxLeases = 240;           // entries in one LEASES

}  // namespace apportion::wire
