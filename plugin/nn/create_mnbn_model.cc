// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/nn/batch_norm.h>

#include <optional>
#include <string>

#include <torch/torch.h>

namespace chainmail::internal {

namespace {

namespace nn = torch::nn;

// The layer that takes the place of another, in the two forms that containers hold.
struct Replacement {
  std::shared_ptr<nn::Module> module;
  nn::AnyModule any;
};

template <typename Old, typename New>
std::optional<Replacement> replace_if(const nn::Module& module,
                                      const std::shared_ptr<Communicator>& communicator) {
  const auto* const old = dynamic_cast<const Old*>(&module);
  if (old == nullptr) return std::nullopt;
  const auto fresh = std::make_shared<New>(old->options, communicator);
  // The tensors themselves: they belong to a copy that nobody else holds, and keep dtype and
  // requires_grad.
  const auto take = [](auto& entries, const auto& others) {
    for (auto& item : entries) {
      if (item.value().defined()) {
        const at::Tensor& other = others[item.key()];
        item.value().set_data(other.detach());
        item.value().set_requires_grad(other.requires_grad());
      }
    }
  };
  auto parameters = fresh->named_parameters(/*recurse=*/false);
  auto buffers = fresh->named_buffers(/*recurse=*/false);
  take(parameters, old->named_parameters(/*recurse=*/false));
  take(buffers, old->named_buffers(/*recurse=*/false));
  fresh->train(old->is_training());
  return Replacement{fresh, nn::AnyModule(fresh)};
}

std::optional<Replacement> replacement_of(const nn::Module& module,
                                          const std::shared_ptr<Communicator>& communicator) {
  if (auto one = replace_if<nn::BatchNorm1dImpl, MultiNodeBatchNormalization1dImpl>(module,
                                                                                    communicator)) {
    return one;
  }
  if (auto one = replace_if<nn::BatchNorm2dImpl, MultiNodeBatchNormalization2dImpl>(module,
                                                                                    communicator)) {
    return one;
  }
  return replace_if<nn::BatchNorm3dImpl, MultiNodeBatchNormalization3dImpl>(module, communicator);
}

// False unless `owner` is a container whose forward() uses its registered modules.
bool put_into(nn::Module& owner, std::size_t position, const std::string& name,
              const Replacement& fresh) {
  const auto index = static_cast<std::ptrdiff_t>(position);
  if (auto* const sequential = dynamic_cast<nn::SequentialImpl*>(&owner)) {
    *(sequential->begin() + index) = fresh.any;
  } else if (auto* const list = dynamic_cast<nn::ModuleListImpl*>(&owner)) {
    *(list->begin() + index) = fresh.module;
  } else if (auto* const dict = dynamic_cast<nn::ModuleDictImpl*>(&owner)) {
    (dict->begin() + index)->value() = fresh.module;
  } else {
    return false;
  }
  owner.replace_module(name, fresh.module);
  return true;
}

void replace_below(nn::Module& owner, const std::string& path,
                   const std::shared_ptr<Communicator>& communicator) {
  std::size_t position = 0;
  for (const auto& child : owner.named_children()) {
    const std::string child_path = path.empty() ? child.key() : path + '.' + child.key();
    if (const auto fresh = replacement_of(*child.value(), communicator)) {
      if (!put_into(owner, position, child.key(), *fresh)) {
        throw InvalidArgument(
            "create_mnbn_model cannot replace '" + child_path + "' (" + child.value()->name() +
            "): forward() of its owner, a " + owner.name() +
            ", goes by a member. Declare that member as a MultiNodeBatchNormalization, or put the "
            "layer into a Sequential");
      }
    } else {
      replace_below(*child.value(), child_path, communicator);
    }
    ++position;
  }
}

}  // namespace

void replace_batch_norms(nn::Module& model, const std::shared_ptr<Communicator>& communicator) {
  check_batch_norm_communicator(communicator);
  if (replacement_of(model, communicator)) {
    throw InvalidArgument("create_mnbn_model: the model is itself a " + model.name() +
                          "; construct a MultiNodeBatchNormalization");
  }
  replace_below(model, "", communicator);
}

}  // namespace chainmail::internal
