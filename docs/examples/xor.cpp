// Trains a network with one hidden layer on XOR by gradient descent and prints its predictions.
#include <tapeformer/tapeformer.h>

#include <iostream>

using namespace tapeformer;

// Registered members are initialised, counted and saved together, under the names given here.
class Network : public Module {
 public:
  Network() {
    add_child("hidden", hidden_);
    add_child("output", output_);
  }
  Tensor forward(const Tensor& x) const { return output_.forward(tanh(hidden_.forward(x))); }

 private:
  Linear hidden_{2, 8};  // from 2 inputs to 8 units
  Linear output_{8, 1};
};

int main() {
  const Tensor inputs = Tensor::from_vector<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2});
  const Tensor targets = Tensor::from_vector<float>({0, 1, 1, 0}, {4, 1});

  Network network;
  network.initialize(1);  // with seed 1

  const double learning_rate = 0.5;
  for (int step = 1; step <= 500; ++step) {
    const Tensor loss = binary_cross_entropy_with_logits(network.forward(inputs), targets);
    backward(loss);
    for (const auto& [name, weight] : network.parameters()) {
      weight.add_scaled(gradient(weight), -learning_rate);
      set_gradient(weight, {});  // the next backward() starts from zero
    }
    if (step % 100 == 0) std::cout << "step " << step << "  loss " << loss.item() << "\n";
  }

  const NoGradScope no_grad;
  std::cout << "predictions\n" << sigmoid(network.forward(inputs)) << "\n";
}
