// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Vectors, arrays, optionals, tuples, pairs, maps and sets as objects: see <chainmail/objects.h>.
//
// Pure functions.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <chainmail/objects.h>

namespace chainmail {

namespace internal {

template <typename... Ts>
std::string list_names(const char* outer) {
  std::string text;
  ((text += (text.empty() ? "" : ", ") + ObjectCodec<Ts>::name()), ...);
  return outer + ("<" + text + ">");
}

// Of vectors, maps and sets.
template <typename Container, typename Element>
struct ContainerCodec {
  /// The elements lie as bytes.
  static constexpr bool kIsBytes = std::is_same_v<Container, std::vector<Element>> &&
                                   IsPlainObject<Element> && !std::is_same_v<Element, bool>;
  static void write(const Container& object, ObjectWriter& writer) {
    writer.put_count(object.size());
    if constexpr (kIsBytes) {
      writer.put(object.data(), object.size() * sizeof(Element));
    } else {
      for (const auto& element : object) ObjectCodec<Element>::write(element, writer);
    }
  }
  static Container read(ObjectReader& reader) {
    Container object;
    if constexpr (kIsBytes) {
      object.resize(reader.get_count(sizeof(Element)));
      reader.get(object.data(), object.size() * sizeof(Element));
    } else {
      for (std::size_t left = reader.get_count(0); left > 0; --left) {
        object.insert(object.end(), ObjectCodec<Element>::read(reader));
      }
    }
    return object;
  }
};

// Of tuples and pairs.
template <typename Whole, typename... Ts>
struct PartsCodec {
  static void write(const Whole& object, ObjectWriter& writer) {
    std::apply([&](const Ts&... parts) { (ObjectCodec<Ts>::write(parts, writer), ...); }, object);
  }
  static Whole read(ObjectReader& reader) {
    return Whole{ObjectCodec<Ts>::read(reader)...};  // braces: left to right
  }
};

}  // namespace internal

/// @cond
template <IsObject T>
struct ObjectCodec<std::vector<T>> : internal::ContainerCodec<std::vector<T>, T> {
  static std::string name() { return internal::list_names<T>("vector"); }
};

template <IsObject T, std::size_t kSize>
struct ObjectCodec<std::array<T, kSize>> {
  static std::string name() {
    return internal::list_names<T>(("array" + std::to_string(kSize)).c_str());
  }
  static void write(const std::array<T, kSize>& object, ObjectWriter& writer) {
    for (const T& element : object) ObjectCodec<T>::write(element, writer);
  }
  static std::array<T, kSize> read(ObjectReader& reader) {
    std::array<T, kSize> object;
    for (T& element : object) element = ObjectCodec<T>::read(reader);
    return object;
  }
};

template <IsObject T>
struct ObjectCodec<std::optional<T>> {
  static std::string name() { return internal::list_names<T>("optional"); }
  static void write(const std::optional<T>& object, ObjectWriter& writer) {
    ObjectCodec<bool>::write(object.has_value(), writer);
    if (object) ObjectCodec<T>::write(*object, writer);
  }
  static std::optional<T> read(ObjectReader& reader) {
    return ObjectCodec<std::uint8_t>::read(reader) != 0
               ? std::optional<T>(ObjectCodec<T>::read(reader))
               : std::nullopt;
  }
};

template <IsObject... Ts>
struct ObjectCodec<std::tuple<Ts...>> : internal::PartsCodec<std::tuple<Ts...>, Ts...> {
  static std::string name() { return internal::list_names<Ts...>("tuple"); }
};

template <typename First, typename Second>
requires IsObject<std::remove_const_t<First>> && IsObject<Second>
struct ObjectCodec<std::pair<First, Second>>
    : internal::PartsCodec<std::pair<First, Second>, std::remove_const_t<First>, Second> {
  static std::string name() {
    return internal::list_names<std::remove_const_t<First>, Second>("pair");
  }
};

template <IsObject Key, IsObject Value>
struct ObjectCodec<std::map<Key, Value>>
    : internal::ContainerCodec<std::map<Key, Value>, std::pair<const Key, Value>> {
  static std::string name() { return internal::list_names<Key, Value>("map"); }
};

template <IsObject T>
struct ObjectCodec<std::set<T>> : internal::ContainerCodec<std::set<T>, T> {
  static std::string name() { return internal::list_names<T>("set"); }
};

/// @endcond

}  // namespace chainmail
