// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Structs of Chainmail's own as objects (<chainmail/objects.h>), by one list of their members:
//
//   static constexpr char kObjectName[] = "what the ranks compare";
//   static auto fields(auto& self) { return std::tie(self.first, self.second); }
//
// Pure functions.

#pragma once

#include <string>
#include <tuple>
#include <type_traits>

#include <chainmail/train/object_containers.h>

namespace chainmail {

namespace internal {

template <typename T>
concept HasFields = requires(T& object) {
  T::fields(object);
};

}  // namespace internal

template <internal::HasFields T>
struct ObjectCodec<T> {
  template <typename Field>
  using CodecOf = ObjectCodec<std::remove_cvref_t<Field>>;

  static std::string name() { return T::kObjectName; }
  static void write(const T& object, ObjectWriter& writer) {
    const auto write_all = [&](const auto&... fields) {
      (CodecOf<decltype(fields)>::write(fields, writer), ...);
    };
    std::apply(write_all, T::fields(object));
  }
  static T read(ObjectReader& reader) {
    T object;
    const auto read_all = [&](auto&... fields) {
      ((fields = CodecOf<decltype(fields)>::read(reader)), ...);
    };
    std::apply(read_all, T::fields(object));
    return object;
  }
};

}  // namespace chainmail
