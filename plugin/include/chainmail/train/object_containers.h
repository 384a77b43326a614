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

// Of maps, sets and vectors whose elements do not lie as bytes.
template <typename Container>
void write_elements(const Container& container, ObjectWriter& writer) {
  writer.put_count(container.size());
  for (const auto& element : container) {
    ObjectCodec<std::decay_t<decltype(element)>>::write(element, writer);
  }
}

template <typename Container, typename Element>
Container read_elements(ObjectReader& reader) {
  Container container;
  for (std::size_t left = reader.get_count(0); left > 0; --left) {
    container.insert(container.end(), ObjectCodec<Element>::read(reader));
  }
  return container;
}

template <typename Container, typename Element>
struct ContainerCodec {
  static void write(const Container& object, ObjectWriter& writer) {
    write_elements(object, writer);
  }
  static Container read(ObjectReader& reader) { return read_elements<Container, Element>(reader); }
};

}  // namespace internal

/// @cond
template <IsObject T>
struct ObjectCodec<std::vector<T>> {
  static constexpr bool kIsBytes = internal::IsPlainObject<T> && !std::is_same_v<T, bool>;
  static std::string name() { return internal::list_names<T>("vector"); }
  static void write(const std::vector<T>& object, ObjectWriter& writer) {
    if constexpr (kIsBytes) {
      writer.put_count(object.size());
      writer.put(object.data(), object.size() * sizeof(T));
    } else {
      internal::write_elements(object, writer);
    }
  }
  static std::vector<T> read(ObjectReader& reader) {
    if constexpr (kIsBytes) {
      std::vector<T> object(reader.get_count(sizeof(T)));
      reader.get(object.data(), object.size() * sizeof(T));
      return object;
    } else {
      return internal::read_elements<std::vector<T>, T>(reader);
    }
  }
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
struct ObjectCodec<std::tuple<Ts...>> {
  static std::string name() { return internal::list_names<Ts...>("tuple"); }
  static void write(const std::tuple<Ts...>& object, ObjectWriter& writer) {
    std::apply([&](const Ts&... parts) { (ObjectCodec<Ts>::write(parts, writer), ...); }, object);
  }
  static std::tuple<Ts...> read(ObjectReader& reader) {
    return std::tuple<Ts...>{ObjectCodec<Ts>::read(reader)...};  // braces: left to right
  }
};

template <typename First, typename Second>
requires IsObject<std::remove_const_t<First>> && IsObject<Second>
struct ObjectCodec<std::pair<First, Second>> {
  using Key = std::remove_const_t<First>;
  static std::string name() { return internal::list_names<Key, Second>("pair"); }
  static void write(const std::pair<First, Second>& object, ObjectWriter& writer) {
    ObjectCodec<Key>::write(object.first, writer);
    ObjectCodec<Second>::write(object.second, writer);
  }
  static std::pair<First, Second> read(ObjectReader& reader) {
    return std::pair<First, Second>{ObjectCodec<Key>::read(reader),
                                    ObjectCodec<Second>::read(reader)};
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
