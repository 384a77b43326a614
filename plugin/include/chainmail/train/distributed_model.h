// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A model whose backward() leaves the means of the gradients over all ranks, so that the loop of a
// single process, with any torch optimizer, trains on all of them: what torch's
// DistributedDataParallel is to Python.
//
//   chainmail::DistributedModel model(net, comm);
//   torch::optim::Adam optimizer(model.parameters(), 1e-3);
//   optimizer.zero_grad();  loss(model(x), t).backward();  optimizer.step();
//
// A torch::jit::Module does, too: loss(model(x).toTensor(), t).
//
// One thread per rank. Collective: every rank constructs it, and calls forward() in training mode
// and backward(), in the same order; in evaluation mode, without gradients and in no_sync(),
// forward() is local. Every backward must reach at least one parameter.
//
// For double buffering, clipping and loss scaling see <chainmail/optimizer.h>.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <chainmail/communicator.h>
#include <chainmail/export.h>
#include <chainmail/optimizer.h>
#include <chainmail/train/module_ref.h>

namespace chainmail {

/// Each as in MultiNodeOptimizerOptions.
struct DistributedModelOptions {
  bool zero_fill = true;                                    ///< missing gradients count as zero
  std::optional<bool> overlap = std::nullopt;               ///< exchange while backward runs
  std::optional<std::int64_t> bucket_bytes = std::nullopt;  ///< of one exchange
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;  ///< of the first one
};

namespace internal {

/// DistributedModel but for the type of its module.
class CHAINMAIL_API DistributedModelBase {
 public:
  DistributedModelBase(const DistributedModelBase&) = delete;
  DistributedModelBase& operator=(const DistributedModelBase&) = delete;

  /// While it lives, backward leaves this rank's own gradients, which add up as usual.
  [[nodiscard]] NoSync no_sync();
  /// Gives every rank the parameters and buffers of rank 0 again. Collective.
  void synchronize();
  /// The module's parameters, in the order of registration. Local.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;
  /// Bytes of the buckets that hold this rank's gradients.
  std::size_t gradient_bytes() const noexcept;

 protected:
  DistributedModelBase(ModuleRef model, std::shared_ptr<Communicator> communicator,
                       const DistributedModelOptions& options);
  ~DistributedModelBase();
  /// Notices layers that were added, converted or unfrozen, and learns the order of gradients.
  void begin_forward();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace internal

/// `Holder` is a TORCH_MODULE holder, a shared pointer to a module, or a torch::jit::Module.
template <typename Holder>
class DistributedModel final : public internal::DistributedModelBase {
  static constexpr bool kIsScript = std::is_base_of_v<torch::jit::Module, Holder>;

 public:
  /// Broadcasts parameters and buffers of rank 0, bit for bit.
  /// @throws MismatchError  ranks have different parameters or buffers (names, shapes, dtypes)
  DistributedModel(Holder module, std::shared_ptr<Communicator> communicator,
                   const DistributedModelOptions& options = {})
      : DistributedModelBase(ModuleRef(module), std::move(communicator), options),
        module_(std::move(module)) {}

  /// Calls the module's forward(), and prepares the exchange of gradients in its backward.
  /// Collective in training mode with gradients enabled.
  /// @throws MismatchError  layers were added that differ between ranks
  template <typename... Args>
  decltype(auto) forward(Args&&... args) {
    begin_forward();
    if constexpr (kIsScript) {
      return module_.forward({torch::jit::IValue(std::forward<Args>(args))...});
    } else {
      return module_->forward(std::forward<Args>(args)...);
    }
  }
  /// The list of arguments that TorchScript's modules take: forward({x}).
  torch::jit::IValue forward(std::vector<torch::jit::IValue> inputs) requires(kIsScript) {
    begin_forward();
    return module_.forward(std::move(inputs));
  }
  /// The same as forward().
  template <typename... Args>
  decltype(auto) operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }
  /// Switches the module to training mode, or with false to evaluation mode. Local; every rank.
  void train(bool is_training = true) { get()->train(is_training); }
  /// Switches the module to evaluation mode, in which forward() is local.
  void eval() { train(false); }
  /// The module's own members: `model->fc1`. Calling forward() through it exchanges nothing.
  auto operator->() noexcept { return get(); }
  /// The module as it was given.
  Holder& module() noexcept { return module_; }
  /// The same.
  const Holder& module() const noexcept { return module_; }

 private:
  auto get() noexcept {
    if constexpr (kIsScript) {
      return &module_;
    } else {
      return module_.get();
    }
  }

  Holder module_;
};

}  // namespace chainmail
