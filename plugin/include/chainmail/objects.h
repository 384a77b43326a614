// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Objects as bytes, for Communicator's bcast_obj and its kin: numbers, enumerations and other
// trivially copyable types without pointers, strings, tensors, and vectors, arrays, pairs, tuples,
// optionals, maps and sets of all these (<chainmail/train/object_containers.h>). Specialise
// ObjectCodec for others. Pointers and views (std::string_view, std::span, c10::ArrayRef) do not
// compile; a pointer inside a struct cannot be seen and must not be sent.
//
// Pure functions. The ranks of a job run the same program, so bytes are as memory has them; every
// length is checked against what is there.

#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/TypeIndex.h>

#include <chainmail/export.h>

namespace chainmail {

/// Collects the bytes of an object.
class ObjectWriter {
 public:
  /// Appends bytes.
  void put(const void* data, std::size_t bytes) {
    bytes_.append(static_cast<const char*>(data), bytes);
  }
  /// Appends a number of elements, as 8 bytes.
  void put_count(std::size_t count) {
    const std::uint64_t wide = count;
    put(&wide, sizeof wide);
  }
  /// All that was appended.
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Takes the bytes of an object apart. Every length is checked against what is left.
class CHAINMAIL_API ObjectReader {
 public:
  /// `bytes` must live as long as this.
  explicit ObjectReader(std::string_view bytes) : bytes_(bytes) {}
  /// Bytes that are left.
  std::size_t remaining() const noexcept { return bytes_.size(); }
  /// The next bytes.
  /// @throws MismatchError  fewer bytes are left; so for all that read
  std::string_view take(std::size_t bytes);
  /// Copies the next bytes to `data`.
  void get(void* data, std::size_t bytes) {
    const std::string_view taken = take(bytes);
    if (bytes != 0) std::memcpy(data, taken.data(), bytes);
  }
  /// The number of elements that follow, each of at least `element_bytes`.
  std::size_t get_count(std::size_t element_bytes);
  /// @throws MismatchError  bytes are left
  void expect_end() const;

 private:
  std::string_view bytes_;
};

/// How T becomes bytes: static name(), write(object, writer) and read(reader). Specialise it for
/// own types. There are specialisations for trivially copyable types without pointers, std::string
/// and at::Tensor (dense, on the CPU, or undefined), and those in
/// <chainmail/train/object_containers.h>.
template <typename T>
struct ObjectCodec;

/// A type that has a codec.
template <typename T>
concept IsObject = requires(const T& object, ObjectWriter& writer, ObjectReader& reader) {
  { ObjectCodec<T>::name() } -> std::convertible_to<std::string>;
  ObjectCodec<T>::write(object, writer);
  { ObjectCodec<T>::read(reader) } -> std::convertible_to<T>;
};

namespace internal {

template <typename T>
concept IsDereferenced = !std::is_array_v<T> && requires(const T& object) {
  *object;
};

/// Constness tells: what owns its elements keeps others from changing them when it is const.
template <typename T>
concept IsBorrowed = requires(T& object, const T& constant) {
  std::size(constant);
  { std::data(object) } -> std::same_as<decltype(std::data(constant))>;
};

/// Refers to elements that are not part of it.
template <typename T>
concept IsView = std::ranges::view<T> || IsDereferenced<T> || IsBorrowed<T>;

template <typename T>
concept HasPlainBytes =
    std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T> &&
    !std::is_pointer_v<T> &&
    !std::is_array_v<T> && !std::is_reference_v<T> && !std::is_member_pointer_v<T> && !IsView<T>;

template <typename T>
inline constexpr bool kIsPlainObject = HasPlainBytes<T>;
template <typename T, std::size_t kSize>
inline constexpr bool kIsPlainObject<std::array<T, kSize>> = kIsPlainObject<T>;

template <typename T>
concept IsPlainObject = kIsPlainObject<T>;

template <typename T>
constexpr bool is_sendable() {
  static_assert(IsObject<T> || !IsView<T>,
                "a view refers to memory of this process and cannot be sent: copy it into a "
                "std::vector or std::string first");
  return IsObject<T>;
}

/// IsObject; does not compile, with the reason, for a view.
template <typename T>
concept IsSendable = is_sendable<T>();

CHAINMAIL_API void write_tensor(const at::Tensor& tensor, ObjectWriter& writer);
CHAINMAIL_API at::Tensor read_tensor(ObjectReader& reader);

}  // namespace internal

/// @cond
template <typename T>
requires internal::IsPlainObject<T>
struct ObjectCodec<T> {
  static std::string name() {
    const std::string bits = std::to_string(8 * sizeof(T));
    if constexpr (std::is_same_v<T, bool>) {
      return "bool";
    } else if constexpr (std::is_floating_point_v<T>) {
      return "float" + bits;
    } else if constexpr (std::is_integral_v<T>) {
      return (std::is_signed_v<T> ? "int" : "uint") + bits;
    } else {
      return std::string(c10::util::get_fully_qualified_type_name<T>());
    }
  }
  static void write(const T& object, ObjectWriter& writer) { writer.put(&object, sizeof object); }
  static T read(ObjectReader& reader) {
    T object;
    reader.get(&object, sizeof object);
    return object;
  }
};

template <>
struct ObjectCodec<std::string> {
  static std::string name() { return "string"; }
  static void write(const std::string& object, ObjectWriter& writer) {
    writer.put_count(object.size());
    writer.put(object.data(), object.size());
  }
  static std::string read(ObjectReader& reader) {
    return std::string(reader.take(reader.get_count(1)));
  }
};

// Dense CPU tensors (InvalidArgument for others), and undefined ones.
template <>
struct ObjectCodec<at::Tensor> {
  static std::string name() { return "tensor"; }
  static void write(const at::Tensor& object, ObjectWriter& writer) {
    internal::write_tensor(object, writer);
  }
  static at::Tensor read(ObjectReader& reader) { return internal::read_tensor(reader); }
};

/// @endcond

/// The name of a type that the ranks compare: "map<string, float64>". Structs and enumerations have
/// the compiler's name for them, so all ranks must be built by the same compiler.
template <IsObject T>
std::string object_type() {
  return ObjectCodec<T>::name();
}

/// The bytes of an object.
template <IsObject T>
std::string to_bytes(const T& object) {
  if constexpr (std::is_same_v<T, std::string>) {
    return object;  // its length is the message's
  } else {
    ObjectWriter writer;
    ObjectCodec<T>::write(object, writer);
    return writer.take();
  }
}

/// The object of these bytes.
/// @throws MismatchError  they are not those of a T
template <IsObject T>
T from_bytes(std::string_view bytes) {
  if constexpr (std::is_same_v<T, std::string>) {
    return std::string(bytes);
  } else {
    ObjectReader reader(bytes);
    T object = ObjectCodec<T>::read(reader);
    reader.expect_end();
    return object;
  }
}

/// from_bytes() of each.
template <IsObject T>
std::vector<T> all_from_bytes(const std::vector<std::string>& all) {
  std::vector<T> objects;
  for (const std::string& bytes : all) objects.push_back(from_bytes<T>(bytes));
  return objects;
}

}  // namespace chainmail
