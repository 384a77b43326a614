// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/membership/wire.h"

#include <cerrno>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/job/job_protocol.h"

namespace chainmail::membership {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw SystemError("membership protocol: " + what, EPROTO);
}

/// Archives for `fields`; names do not travel.
class Writer {
 public:
  void operator()(const char* /*name*/, const auto& value) { put(value); }
  template <typename T>
  void put(const T& value) {
    if constexpr (std::is_integral_v<T>) {
      body_.u64(static_cast<std::uint64_t>(value));
    } else {
      T::fields(*this, value);
    }
  }
  void put(const std::string& text) { body_.text(text); }
  template <typename T>
  void put(const std::vector<T>& values) {
    body_.u32(static_cast<std::uint32_t>(values.size()));
    for (const T& value : values) put(value);
  }
  template <typename T>
  void put(const std::optional<T>& value) {
    body_.u8(value ? 1 : 0);
    if (value) put(*value);
  }
  void put(const WorldPtr& world) { put(*world); }
  template <typename... T>
  void put(const std::variant<T...>& value) {
    body_.u8(static_cast<std::uint8_t>(value.index()));
    std::visit([this](const auto& held) { this->put(held); }, value);
  }
  [[nodiscard]] std::string take() { return body_.take(); }

 private:
  internal::BodyWriter body_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : body_(bytes) {}
  void operator()(const char* /*name*/, auto& value) { get(value); }
  template <typename T>
  void get(T& value) {
    if constexpr (std::is_integral_v<T>) {
      const std::uint64_t number = body_.u64();
      value = static_cast<T>(number);
      if (static_cast<std::uint64_t>(value) != number) refuse("a number that is too large");
    } else {
      T::fields(*this, value);
    }
  }
  void get(std::string& text) { text = body_.text(); }
  template <typename T>
  void get(std::vector<T>& values) {
    // Each element takes bytes of the body, so the number alone makes nothing grow.
    for (std::uint32_t left = body_.u32(); left > 0; --left) get(values.emplace_back());
  }
  template <typename T>
  void get(std::optional<T>& value) {
    value.reset();
    if (body_.u8() != 0) get(value.emplace());
  }
  void get(WorldPtr& world) {
    World read;
    get(read);
    const std::size_t ranks = read.members.size();
    if (read.hosts.size() != ranks || read.cut.size() != ranks + 1) {
      refuse("a world of " + std::to_string(ranks) + " members with " +
             std::to_string(read.hosts.size()) + " hosts and " + std::to_string(read.cut.size()) +
             " bounds of shards");
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (read.cut[rank] > read.cut[rank + 1]) refuse("a world whose shards go backwards");
    }
    world = std::make_shared<const World>(std::move(read));
  }
  template <typename... T>
  void get(std::variant<T...>& value) {
    const std::size_t index = body_.u8();
    if (index >= sizeof...(T)) refuse("a message of type " + std::to_string(index));
    emplace(value, index, std::index_sequence_for<T...>());
  }
  void end() const {
    if (!body_.at_end()) refuse("bytes after the end of a message");
  }

 private:
  template <typename... T, std::size_t... I>
  void emplace(std::variant<T...>& value, std::size_t index, std::index_sequence<I...> /*types*/) {
    (void)((I == index ? (get(value.template emplace<I>()), true) : false) || ...);
  }

  internal::BodyReader body_;
};

template <typename T>
T decode(std::string_view bytes) {
  Reader reader(bytes);
  T value;
  reader.get(value);
  reader.end();
  return value;
}

}  // namespace

std::string world_prefix(Generation generation) {
  return "world" + std::to_string(generation) + "/";
}

std::vector<std::string> key_prefixes(Generation generation) {
  const std::string world = world_prefix(generation);
  return {"chainmail/group/" + world, "chainmail/" + world, "store/" + world};
}

std::string encode(const LauncherWord& word) {
  Writer writer;
  writer.put(word);
  return writer.take();
}

std::string encode(const MemberMessage& message) {
  Writer writer;
  writer.put(message);
  return writer.take();
}

LauncherWord decode_launcher_word(std::string_view bytes) { return decode<LauncherWord>(bytes); }

MemberMessage decode_member_message(std::string_view bytes) { return decode<MemberMessage>(bytes); }

}  // namespace chainmail::membership
