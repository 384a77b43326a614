// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A recurrent layer whose sequence goes on on another rank; ChainerMN's
// create_multi_node_n_step_rnn.
//
// Between two ranks: the one sends its last state, and the other begins with it. Every rank ends
// with the Chain's backward().

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>
#include <torch/nn/utils/rnn.h>

#include <chainmail/error.h>
#include <chainmail/nn/parallel/chain.h>

namespace chainmail {

/// Where a recurrent layer's first state comes from, and its last state goes.
struct NStepRanks {
  std::optional<int> rank_in =
      std::nullopt;  ///< unset: the state that forward() is given, or zeros
  std::optional<int> rank_out = std::nullopt;  ///< unset: forward() returns it only
};

/// torch's RNN, GRU or LSTM (Impl: RNNImpl, GRUImpl, LSTMImpl), of any number of layers, in one
/// direction or both. The layers of ranks that follow each other have states of the same shape;
/// lengths of sequences may differ.
template <typename Impl>
requires std::is_same_v<Impl, torch::nn::RNNImpl> || std::is_same_v<Impl, torch::nn::GRUImpl> ||
    std::is_same_v<Impl, torch::nn::LSTMImpl>
class MultiNodeNStepRNN final : public torch::nn::Module {
 public:
  /// Of an LSTM two tensors, otherwise one.
  using State = std::conditional_t<std::is_same_v<Impl, torch::nn::LSTMImpl>,
                                   std::tuple<at::Tensor, at::Tensor>, at::Tensor>;

  /// `chain` must live as long as this. Local.
  MultiNodeNStepRNN(std::shared_ptr<Impl> rnn, Chain& chain, const NStepRanks& ranks)
      : torch::nn::Module("chainmail::MultiNodeNStepRNN"), chain_(chain), ranks_(ranks) {
    if (!rnn) throw InvalidArgument("MultiNodeNStepRNN needs a layer");
    rnn_ = register_module("rnn", std::move(rnn));
  }

  /// As the layer's own forward: output and last state. Receives the first state from rank_in,
  /// whose rank calls this too, and sends the last to rank_out.
  /// @throws InvalidArgument  `first` is given and there is a rank_in; rank_in sends another
  ///                          layer's state
  std::tuple<at::Tensor, State> forward(const at::Tensor& x,
                                        std::optional<State> first = std::nullopt) {
    auto result = rnn_->forward(x, as_argument(first_state(std::move(first))));
    send_last(std::get<1>(result));
    return result;
  }

  /// The same for a packed sequence.
  std::tuple<torch::nn::utils::rnn::PackedSequence, State> forward_with_packed_input(
      const torch::nn::utils::rnn::PackedSequence& x, std::optional<State> first = std::nullopt) {
    auto result = rnn_->forward_with_packed_input(x, as_argument(first_state(std::move(first))));
    send_last(std::get<1>(result));
    return result;
  }

 private:
  static constexpr bool kIsLstm = std::is_same_v<Impl, torch::nn::LSTMImpl>;

  std::optional<State> first_state(std::optional<State> given) {
    if (!ranks_.rank_in) return given;
    if (given) {
      throw InvalidArgument("MultiNodeNStepRNN: the first state comes from rank " +
                            std::to_string(*ranks_.rank_in) + "; pass none");
    }
    const std::vector<at::Tensor> received = chain_.recv_list(*ranks_.rank_in);
    if (received.size() != (kIsLstm ? 2 : 1)) {
      throw InvalidArgument("MultiNodeNStepRNN: rank " + std::to_string(*ranks_.rank_in) +
                            " sent a state of " + std::to_string(received.size()) +
                            " tensors; are both an LSTM, or neither?");
    }
    if constexpr (kIsLstm) {
      return State(received[0], received[1]);
    } else {
      return received[0];
    }
  }

  // torch's LSTM takes an optional, the others a tensor that may be undefined.
  static auto as_argument(std::optional<State> state) {
    if constexpr (kIsLstm) {
      return state;
    } else {
      return state.value_or(at::Tensor());
    }
  }

  void send_last(const State& state) {
    if (!ranks_.rank_out) return;
    if constexpr (kIsLstm) {
      chain_.send({std::get<0>(state), std::get<1>(state)}, *ranks_.rank_out);
    } else {
      chain_.send(state, *ranks_.rank_out);
    }
  }

  std::shared_ptr<Impl> rnn_;
  Chain& chain_;
  NStepRanks ranks_;
};

/// Makes a layer of torch's go on across ranks; it stays the same layer.
///
/// @code
/// chainmail::Chain chain(comm);
/// torch::nn::LSTM lstm(16, 32);
/// auto rnn = chainmail::create_multi_node_n_step_rnn(lstm, chain, {.rank_out = 1});
/// auto [y, state] = rnn->forward(x);
/// chain.backward();
/// @endcode
/// @param rnn  a torch::nn::RNN, GRU or LSTM; others do not compile
/// @param chain  must live as long as the result
/// @param ranks  of the chain's communicator
template <typename Holder>
requires std::is_base_of_v<torch::detail::ModuleHolderIndicator, Holder>
[[nodiscard]] auto create_multi_node_n_step_rnn(const Holder& rnn, Chain& chain,
                                                const NStepRanks& ranks) {
  using Impl = typename Holder::ContainedType;
  return std::make_shared<MultiNodeNStepRNN<Impl>>(rnn.is_empty() ? nullptr : rnn.ptr(), chain,
                                                   ranks);
}

}  // namespace chainmail
