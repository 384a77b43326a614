// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Modules whose parameters, gradients and optimizer state are cut over the ranks: ZeRO-3
// (Rajbhandari et al., SC 2020), in the manner of torch's fully_shard.
//
//   struct NetImpl : torch::nn::Module {
//     explicit NetImpl(const std::shared_ptr<chainmail::Communicator>& comm)
//         : a(Block(1024), comm), b(Block(1024), comm) {
//       register_module("a", a);
//       register_module("b", b);
//     }
//     torch::Tensor forward(torch::Tensor x) { return b->forward(a->forward(x)); }
//     chainmail::Sharded<Block> a, b;
//   };
//   torch::optim::Adam optimizer(chainmail::sharded_parameters(net), 1e-3);
//   optimizer.zero_grad();  loss(net->forward(x), t).backward();  optimizer.step();
//
// Each Sharded is a unit. Its parameters are whole while its forward() or its backward runs; in
// between a rank has 1/size of them. backward() leaves the means of the gradients over the ranks,
// of which a rank has its slices. Between a unit's gather and its use the one before it computes.
//
// One thread per rank. Collective: construction, forward(), with gradients or without, and
// backward(); every rank builds the same units and comes to them in the same order, with samples of
// its own, and uses the same of their parameters. Ranks that do not get a MismatchError that names
// what each of them did.
//
// On the CPU. Not for TorchScript, elastic jobs, second derivatives (create_graph), and the
// communicators gloo and nccl.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <chainmail/communicator.h>
#include <chainmail/export.h>
#include <chainmail/nn/sharded_scope.h>
#include <chainmail/train/module_ref.h>

namespace chainmail {

/// How a module becomes a unit; the same on all ranks.
struct ShardedOptions {
  /// Of the unit, for messages. Empty: the module's type and the unit's number.
  std::string name = {};
};

/// What the units of one communicator have done so far, and what they hold. Local.
struct ShardedCounts {
  std::uint64_t gathers = 0;     ///< of units, forward and backward
  std::uint64_t reductions = 0;  ///< of the gradients of a unit
  std::size_t whole_bytes = 0;   ///< of whole units and their gradients, now
  std::size_t peak_bytes = 0;    ///< the most that these were
};

/// While one lives, the parameters of a unit are whole, to read or to save them. Made by
/// ShardedModule::gather(). What is written to them is lost.
class CHAINMAIL_API GatheredParameters {
 public:
  /// The other one keeps nothing.
  GatheredParameters(GatheredParameters&&) noexcept;
  /// The parameters lose their memory, unless somebody else needs it. Local, but at the same place
  /// of the program on all ranks, and before the optimizer steps: a unit that is whole keeps the
  /// old parameters, and takes no part in the next gather of the others.
  ~GatheredParameters();

 private:
  friend class ShardedModule;
  explicit GatheredParameters(std::unique_ptr<internal::ShardedScope> scope) noexcept;
  std::unique_ptr<internal::ShardedScope> scope_;
};

/// A Sharded but for the type of its module: what a program finds in model->modules().
///
/// Its parameters are this rank's slices, under the names of the module's: one-dimensional, empty
/// where this rank has nothing of a parameter. requires_grad() of a slice counts from the next
/// forward() on. Buffers are the module's own, rank 0's at first.
///
/// Values are written into slices with copy_() and the like, not between a forward() and its
/// backward(), which throws InvalidArgument then. torch's optimizers may step in between, as with
/// whole parameters: backward() goes through the new ones. A gradient of a slice lies in memory
/// that the next backward() uses again once it is reset, unless a program has kept the tensor.
class CHAINMAIL_API ShardedModule : public torch::nn::Module {
 public:
  ~ShardedModule() override;

  /// Switches the module to training mode, or with false to evaluation mode. Local.
  void train(bool is_training = true) override;
  /// Throws InvalidArgument unless the tensors are such already: parameters stay what they are.
  void to(at::Device device, at::ScalarType dtype, bool non_blocking = false) override;
  /// The same.
  void to(at::ScalarType dtype, bool non_blocking = false) override;
  /// The same.
  void to(at::Device device, bool non_blocking = false) override;
  /// The module's.
  void pretty_print(std::ostream& stream) const override;

  /// Makes the parameters of the module whole until the result ends. Collective.
  [[nodiscard]] GatheredParameters gather();
  /// Of all units of the communicator. Local.
  [[nodiscard]] ShardedCounts counts() const;
  /// The name in messages. Local.
  [[nodiscard]] const std::string& unit_name() const noexcept;

 protected:
  /// Cuts the parameters of `module`, which are then without memory. Collective.
  ShardedModule(std::shared_ptr<torch::nn::Module> module,
                std::shared_ptr<Communicator> communicator, const ShardedOptions& options);
  /// `forward`, called with the parameters whole.
  template <typename Forward, typename... Args>
  auto call_whole(const Forward& forward, Args&&... args) {
    std::tuple<std::decay_t<Args>...> values(std::forward<Args>(args)...);
    using Result = std::decay_t<decltype(forward(std::declval<std::decay_t<Args>>()...))>;
    static_assert(internal::kHoldsTensors<Result>,
                  "forward() of a Sharded module returns a tensor, or a vector, tuple, pair or "
                  "optional of tensors: backward must come to the unit through them");
    internal::ShardedScope scope(make_call());
    std::vector<at::Tensor*> tensors;
    internal::find_tensors(values, tensors);
    scope.take_arguments(tensors);
    Result result = std::apply(
        [&](std::decay_t<Args>&... value) {
          return forward(std::forward<std::decay_t<Args>>(value)...);
        },
        values);
    tensors.clear();
    internal::find_tensors(result, tensors);
    scope.take_results(tensors);
    return result;
  }

 private:
  std::shared_ptr<internal::UnitCall> make_call() const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace internal {

/// forward() with the arguments of M's, so that Sequential can hold the module; of any arguments
/// where M has several.
template <typename Derived, typename M, typename = void>
class ShardedForward {
 public:
  template <typename... Args>
  auto forward(Args&&... args) {
    return static_cast<Derived*>(this)->call(std::forward<Args>(args)...);
  }
};

template <typename Derived, typename Function>
class TypedForward;
template <typename Derived, typename M, typename Result, typename... Args>
class TypedForward<Derived, Result (M::*)(Args...)> {
 public:
  Result forward(Args... args) {
    return static_cast<Derived*>(this)->call(std::forward<Args>(args)...);
  }
};
template <typename Derived, typename M, typename Result, typename... Args>
class TypedForward<Derived, Result (M::*)(Args...) const>
    : public TypedForward<Derived, Result (M::*)(Args...)> {};

template <typename Derived, typename M>
class ShardedForward<Derived, M, std::void_t<decltype(&M::forward)>>
    : public TypedForward<Derived, decltype(&M::forward)> {};

}  // namespace internal

/// What a Sharded holds.
template <typename M>
class ShardedImpl final : public ShardedModule, public internal::ShardedForward<ShardedImpl<M>, M> {
 public:
  /// As Sharded().
  ShardedImpl(std::shared_ptr<M> module, std::shared_ptr<Communicator> communicator,
              const ShardedOptions& options)
      : ShardedModule(module, std::move(communicator), options), module_(std::move(module)) {}

  /// The module's forward(), whose default arguments count. Collective.
  /// @throws InvalidArgument  a result lies in the memory of a parameter; a parameter or a slice
  ///                          has been given other memory, as torch::load() and set_data() do
  /// @throws MismatchError    ranks are not at the same unit
  template <typename... Args>
  auto call(Args&&... args) {
    return call_whole(
        [this](auto&&... values) {
          return module_->forward(std::forward<decltype(values)>(values)...);
        },
        std::forward<Args>(args)...);
  }
  /// The module as it was given. Its parameters have no memory, and reading them ends the program,
  /// unless gather() keeps them; its forward() is not for use.
  const std::shared_ptr<M>& module() const noexcept { return module_; }

 private:
  std::shared_ptr<M> module_;
};

/// A unit. `Holder` is a TORCH_MODULE holder: `Sharded<Block> a(Block(1024), comm)`; registered
/// like any module, and called like one: a->forward(x), or a(x), where default arguments count.
///
/// Sharded modules may lie in one another: the parameters of the inner one are its own. A parameter
/// that an earlier unit has, too (tied weights), stays that one's, which is gathered with this.
template <typename Holder>
class Sharded : public torch::nn::ModuleHolder<ShardedImpl<typename Holder::ContainedType>> {
  using Impl = ShardedImpl<typename Holder::ContainedType>;

 public:
  /// Empty, to be assigned to.
  Sharded(std::nullptr_t = nullptr)  // NOLINT: holders convert
      : torch::nn::ModuleHolder<Impl>(nullptr) {}
  /// What register_module() returns, as of torch's holders:
  /// `a = register_module("a", Sharded<Block>(Block(1024), comm))`.
  Sharded(std::shared_ptr<Impl> unit)  // NOLINT: holders convert
      : torch::nn::ModuleHolder<Impl>(std::move(unit)) {}
  /// Takes `module` over, with rank 0's values; it is not to be used by itself any more. Its
  /// parameters are dense, on the CPU and of one floating-point type. Collective.
  /// @throws InvalidArgument  other parameters, or none, or some that have memory in common with
  ///                          others without being the same tensor; a communicator that is not for
  ///                          it
  /// @throws MismatchError    ranks have different modules
  Sharded(Holder module, std::shared_ptr<Communicator> communicator,
          const ShardedOptions& options = {})
      : torch::nn::ModuleHolder<Impl>(
            std::make_shared<Impl>(module.ptr(), std::move(communicator), options)) {}

  /// The module's forward().
  template <typename... Args>
  auto operator()(Args&&... args) {
    return this->impl_->call(std::forward<Args>(args)...);
  }
};

/// Makes a unit of each layer of `model` that has parameters, in place, and returns the model. What
/// is a Sharded stays as it is. For layers of one tensor that return one. Units have the names of
/// the layers. Collective.
/// @throws InvalidArgument  as Sharded()
/// @throws MismatchError    ranks have different models
CHAINMAIL_API torch::nn::Sequential create_sharded_model(
    torch::nn::Sequential model, const std::shared_ptr<Communicator>& communicator);

/// This rank's slices of all parameters of `model`, each once, for any optimizer that treats
/// elements one by one (SGD, Adam, AdamW, RMSprop, Adagrad): it steps them as it would whole
/// parameters, bit for bit. Not for a multi-node optimizer, since the gradients are means already.
/// Local.
/// @throws InvalidArgument  a parameter is in no unit; names it
[[nodiscard]] CHAINMAIL_API std::vector<at::Tensor> sharded_parameters(const ModuleRef& model);

/// torch's clip_grad_norm_ for gradients of slices: scales them down so that their 2-norm over all
/// parameters and ranks is at most `max_norm`, and returns what it was, the same on every rank; for
/// infinity it changes nothing. Collective.
/// @throws InvalidArgument  as sharded_parameters(); max_norm is not positive
CHAINMAIL_API double clip_sharded_grad_norm(const std::shared_ptr<Communicator>& communicator,
                                            const ModuleRef& model, double max_norm);

}  // namespace chainmail
