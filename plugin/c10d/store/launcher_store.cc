// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/store/launcher_store.h"

#include <c10/util/Exception.h>

#include <utility>

#include "base/error.h"

namespace chainmail::internal {
namespace {

using Bytes = LauncherStore::Bytes;

Bytes to_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string to_text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

LauncherStore::LauncherStore(std::shared_ptr<LauncherClient> client, std::string prefix,
                             std::chrono::milliseconds timeout)
    : Store(timeout), client_(std::move(client)), prefix_(std::move(prefix)) {}

c10::intrusive_ptr<c10d::Store> LauncherStore::clone() {
  return c10::make_intrusive<LauncherStore>(client_, prefix_, timeout_);
}

void LauncherStore::set(const std::string& key, const Bytes& value) {
  client_->set(prefix_ + key, to_text(value), limit());
}

Bytes LauncherStore::compareSet(const std::string& key, const Bytes& expected,
                                const Bytes& desired) {
  return to_bytes(
      client_->compare_set(prefix_ + key, to_text(expected), to_text(desired), limit()));
}

Deadline LauncherStore::limit() const { return Deadline::after(timeout_); }

std::string LauncherStore::get_by(const std::string& key, const Deadline& deadline) {
  try {
    return client_->get(prefix_ + key, deadline);
  } catch (const TimeoutError& error) {
    // c10d's callers know this type, and Python turns it into DistStoreError.
    TORCH_CHECK_WITH(DistStoreError, false, "wait timeout: ", error.what());
  }
}

Bytes LauncherStore::get(const std::string& key) { return to_bytes(get_by(key, limit())); }

std::int64_t LauncherStore::add(const std::string& key, std::int64_t value) {
  return client_->add(prefix_ + key, value, limit());
}

bool LauncherStore::deleteKey(const std::string& key) {
  return client_->remove(prefix_ + key, limit());
}

bool LauncherStore::check(const std::vector<std::string>& keys) {
  const Deadline deadline = limit();
  for (const std::string& key : keys) {
    if (!client_->try_get(prefix_ + key, deadline)) return false;
  }
  return true;
}

std::int64_t LauncherStore::getNumKeys() { return client_->count(limit()); }

void LauncherStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void LauncherStore::wait(const std::vector<std::string>& keys,
                         const std::chrono::milliseconds& timeout) {
  const Deadline deadline = Deadline::after(timeout == kNoTimeout ? timeout_ : timeout);
  for (const std::string& key : keys) get_by(key, deadline);
}

void LauncherStore::append(const std::string& key, const Bytes& value) {
  client_->append(prefix_ + key, to_text(value), limit());
}

std::vector<Bytes> LauncherStore::multiGet(const std::vector<std::string>& keys) {
  const Deadline deadline = limit();
  std::vector<Bytes> values;
  for (const std::string& key : keys) values.push_back(to_bytes(get_by(key, deadline)));
  return values;
}

void LauncherStore::multiSet(const std::vector<std::string>& keys,
                             const std::vector<Bytes>& values) {
  TORCH_CHECK(keys.size() == values.size(), "chainmail: multiSet got ", keys.size(), " keys and ",
              values.size(), " values");
  for (std::size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
}

}  // namespace chainmail::internal
