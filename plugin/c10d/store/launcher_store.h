// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The launcher's key-value store as a c10d::Store.
//
// Thread-safe; a waiting thread does not hold up others.

#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <string>
#include <vector>

#include "plugin/job/launcher/launcher_client.h"

namespace chainmail::internal {

class LauncherStore final : public c10d::Store {
 public:
  using Bytes = std::vector<std::uint8_t>;

  /// Keys get `prefix`, which keeps those of users apart from Chainmail's own.
  LauncherStore(std::shared_ptr<LauncherClient> client, std::string prefix,
                std::chrono::milliseconds timeout);

  const std::shared_ptr<LauncherClient>& client() const noexcept { return client_; }

  c10::intrusive_ptr<c10d::Store> clone() override;
  using Store::set;
  void set(const std::string& key, const Bytes& value) override;
  using Store::compareSet;
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override;
  Bytes get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const Bytes& value) override;
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) override;
  bool hasExtendedApi() const override { return true; }

 private:
  Deadline limit() const;
  std::string get_by(const std::string& key, const Deadline& deadline);

  const std::shared_ptr<LauncherClient> client_;
  const std::string prefix_;
};

}  // namespace chainmail::internal
