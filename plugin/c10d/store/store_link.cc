// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/store/store_link.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <map>
#include <vector>

#include "ops/engine/failure/rendezvous_news.h"
#include "plugin/c10d/store/store_rendezvous.h"

namespace chainmail::internal {
namespace {

/// Who has a link to which store. Owns none of them.
struct Links {
  std::mutex mutex;
  std::map<const c10d::Store*, std::weak_ptr<StoreLink>> by_store;
};

Links& links() {
  static Links all;
  return all;
}

}  // namespace

std::shared_ptr<StoreLink> StoreLink::to(const c10::intrusive_ptr<c10d::Store>& base) {
  Links& all = links();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.by_store, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = all.by_store.find(base.get()); found != all.by_store.end()) {
    if (auto link = found->second.lock()) return link;
  }
  auto link = std::make_shared<StoreLink>(base);
  all.by_store[base.get()] = link;
  return link;
}

StoreLink::StoreLink(const c10::intrusive_ptr<c10d::Store>& base)
    : base_(base), store_(base->clone()) {}

void StoreLink::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
}

std::optional<std::string> StoreLink::try_get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (!store_->check({key})) return std::nullopt;
  const auto bytes = store_->get(key);
  return std::string(bytes.begin(), bytes.end());
}

std::int64_t StoreLink::add(const std::string& key, std::int64_t amount) {
  const std::lock_guard lock(mutex_);
  return store_->add(key, amount);
}

void StoreLink::remove(const std::string& key) {
  const std::lock_guard lock(mutex_);
  store_->deleteKey(key);
}

std::shared_ptr<ops::FailureNews> StoreLink::news() {
  const std::lock_guard lock(news_mutex_);
  if (auto news = news_.lock()) return news;
  auto news = std::make_shared<ops::RendezvousNews>(std::make_shared<StoreRendezvous>(
      c10::make_intrusive<c10d::PrefixStore>("chainmail", base_)));
  news_ = news;
  return news;
}

void StoreLink::forget_news_of(const std::string& group) {
  remove("chainmail/" + ops::RendezvousNews::key_of(group));
}

}  // namespace chainmail::internal
