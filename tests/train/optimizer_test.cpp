#include "train/optimization/optimizer.h"

#include <doctest/doctest.h>

#include <cmath>

#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/view.h"
#include "tests/models/small_model.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"
#include "train/optimization/schedule.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE(
    "RAdam equals its definition: five steps of SGD with momentum, then rectified steps, with eps outside "
    "of the uncorrected root") {
  OptimizerConfig config;
  config.lr = 0.1;
  config.weight_decay = 0.01;
  constexpr double eps = 1e-3;
  config.options.set("eps", eps);  // with a large eps, the result depends on where eps is added
  const Tensor parameter = set_requires_grad(Tensor::from_vector<double>({0.7}, {1}));
  Optimizer optimizer(config, {{"p", parameter}});
  double p = 0.7, m = 0, v = 0;
  const double b1 = 0.9, b2 = 0.999;
  for (int t = 1; t <= 12; ++t) {
    const double g = std::cos(t);
    set_gradient(parameter, Tensor::from_vector<double>({g}, {1}));
    optimizer.step(config.lr);
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    p *= 1 - config.lr * config.weight_decay;
    const double inf = 2 / (1 - b2) - 1, rho = inf - 2 * t * std::pow(b2, t) / (1 - std::pow(b2, t));
    CHECK((rho >= 5) == (t >= 6));
    if (rho >= 5) {
      const double r = std::sqrt((rho - 4) * (rho - 2) * inf / ((inf - 4) * (inf - 2) * rho));
      p -= config.lr * r * std::sqrt(1 - std::pow(b2, t)) / (1 - std::pow(b1, t)) * m / (std::sqrt(v) + eps);
    } else {
      p -= config.lr / (1 - std::pow(b1, t)) * m;
    }
    CHECK(parameter.item() == doctest::Approx(p).epsilon(1e-12));
  }
}

TEST_CASE("clipping scales all gradients together or each tensor separately") {
  for (const bool per_tensor : {false, true}) {
    OptimizerConfig config;
    config.kind = "sgd";
    config.options.set("momentum", 0.0);
    config.clip_norm = 1;
    config.clip = per_tensor ? "per_tensor" : "global";
    const Tensor a = set_requires_grad(Tensor::zeros({2}, DType::float64)),
                 b = set_requires_grad(Tensor::zeros({1}, DType::float64));
    set_gradient(a, Tensor::from_vector<double>({3, 4}, {2}));
    set_gradient(b, Tensor::from_vector<double>({12}, {1}));
    Optimizer optimizer(config, {{"a", a}, {"b", b}});
    CHECK(optimizer.step(1).item() == doctest::Approx(13));
    const double norm = per_tensor ? 5 : 13;
    CHECK(a.to_vector()[1] == doctest::Approx(-4 / norm).epsilon(1e-6));
    CHECK(b.to_vector()[0] == doctest::Approx(per_tensor ? -1 : -12 / 13.0).epsilon(1e-6));
    CHECK_FALSE(gradient(a).defined());
  }
}

TEST_CASE("Adafactor of trax equals its definition") {
  OptimizerConfig config;
  config.kind = "adafactor";
  config.options.set("form", std::string("trax"));
  config.lr = 0.3;
  config.weight_decay = 0.01;
  constexpr int64_t kRows = 2, kColumns = 3;
  const Tensor matrix = set_requires_grad(normal({kRows, kColumns}, 1));
  Optimizer optimizer(config, {{"m", matrix}});
  std::vector<double> p = matrix.to_vector(), row(kRows), column(kColumns);
  for (int t = 1; t <= 8; ++t) {
    const Tensor gradients = normal({kRows, kColumns}, 10 + t);
    const std::vector<double> g = gradients.to_vector();
    set_gradient(matrix, gradients);
    optimizer.step(config.lr);
    const double mix = std::pow(t, -0.8);
    std::vector<double> rows(kRows), columns(kColumns), u(g);
    double size = 0, row_mean = 0, update = 0;
    for (size_t i = 0; i < g.size(); ++i) {
      rows[i / kColumns] += g[i] * g[i] / kColumns;
      columns[i % kColumns] += g[i] * g[i] / kRows;
      size += p[i] * p[i] / static_cast<double>(g.size());
    }
    for (size_t i = 0; i < kRows; ++i) row[i] += mix * (rows[i] - row[i]), row_mean += row[i] / kRows;
    for (size_t i = 0; i < kColumns; ++i) column[i] += mix * (columns[i] - column[i]);
    for (size_t i = 0; i < g.size(); ++i) {
      u[i] = g[i] / std::sqrt(row[i / kColumns] / row_mean) / std::sqrt(column[i % kColumns]);
      update += u[i] * u[i] / static_cast<double>(g.size());
    }
    for (size_t i = 0; i < g.size(); ++i) {
      p[i] = (1 - config.weight_decay) * p[i] -
             config.lr * std::max(1e-3, std::sqrt(size)) * u[i] / std::max(1.0, std::sqrt(update));
      CHECK(matrix.to_vector()[i] == doctest::Approx(p[i]).epsilon(1e-12));
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, tensor] : optimizer.state()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"row.m", "column.m"});
}

TEST_CASE("Muon moves matrices by a polynomial of singular values, and the matrices of AdamW by AdamW") {
  // The columns of `left` (5, 2) and `right` (3, 2) are orthonormal, so the gradient has the singular values
  // 3 and 4, and its norm is 5.
  const Tensor left = Tensor::from_vector<double>({0.6, 0, 0.8, 0, 0, 0.6, 0, 0, 0, -0.8}, {5, 2});
  const Tensor right = Tensor::from_vector<double>({0.28, 0.96, 0.96, -0.28, 0, 0}, {3, 2});
  const auto compose = [&](double s0, double s1) {
    return matmul(mul(left, Tensor::from_vector<double>({s0, s1}, {2})), right, {.transpose_b = true});
  };
  double s[] = {3.0 / 5, 4.0 / 5};
  for (double& value : s)
    for (int i = 0; i < 5; ++i)
      value = 3.4445 * value - 4.7750 * std::pow(value, 3) + 2.0315 * std::pow(value, 5);
  const Tensor start = normal({5, 3}, 1);
  const Tensor expected =
      sub(mul(start, 1 - 0.1 * 0.02), mul(compose(s[0], s[1]), 0.1 * 0.2 * std::sqrt(5.0)));
  const NamedParameters parameters = {{"tall", set_requires_grad(start.clone())},
                                      {"wide", set_requires_grad(transpose(start, 0, 1).clone())},
                                      {"value_embedding.weight", set_requires_grad(start.clone())}};
  const Tensor g = compose(3, 4);
  for (const auto& [name, parameter] : parameters)
    set_gradient(parameter, name == "wide" ? transpose(g, 0, 1).clone() : g);
  Optimizer muon({.kind = "muon", .weight_decay = 0.02}, parameters);
  const NamedParameters state = muon.state();
  CHECK(muon.step(0.1).item() == doctest::Approx(5 * std::sqrt(3.0)));
  CHECK(max_difference(parameters[0].second, expected) < 1e-13);
  CHECK(max_difference(parameters[1].second, transpose(expected, 0, 1)) < 1e-13);

  const Tensor embedding = set_requires_grad(start.clone());
  set_gradient(embedding, g);
  Optimizer({.kind = "adamw", .weight_decay = 0.02}, {{"e", embedding}}).step(0.1);
  CHECK(max_difference(parameters[2].second, embedding) < 1e-15);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) names.push_back(name);
  CHECK(names == std::vector<std::string>{"first.tall", "first.wide", "first.value_embedding.weight",
                                          "second.value_embedding.weight"});
}

TEST_CASE("weight decay does not apply to parameters that are registered without it, with each optimizer") {
  for (const OptimizerKind& kind : list_optimizer_kinds())
    for (const Device device : list_devices()) {
      CAPTURE(kind.name);
      OptimizerConfig config{.kind = kind.name, .weight_decay = 0.1};
      if (kind.name == "sgd") config.options.set("momentum", 0.0);
      NamedParameters parameters;
      for (const char* name : {"decayed", "kept", "decayed_matrix", "kept_matrix"}) {
        const Shape shape = parameters.size() < 2 ? Shape{7} : Shape{3, 5};
        parameters.emplace_back(name, set_requires_grad(Tensor::full(shape, 0.5, DType::float32, device)));
      }
      Optimizer optimizer(config, parameters, {parameters[1], parameters[3]});
      for (int step = 0; step < 3; ++step) {
        for (const auto& [name, parameter] : parameters)
          set_gradient(parameter, Tensor::zeros_like(parameter));
        optimizer.step(0.1);
      }
      for (size_t i = 0; i < parameters.size(); ++i)
        for (const double value : parameters[i].second.to_vector()) CHECK((value == 0.5) == (i % 2 == 1));
    }
}

TEST_CASE("weight decay does not apply to the rates and time steps of gated-delta") {
  AutoregressiveModel model(small_options("gated-delta"));
  model.initialize(1);
  model.convert(DType::float64);
  for (const Device device : list_devices()) {
    model.move(device);
    NamedTensors before;
    for (const auto& [name, parameter] : model.parameters()) {
      before.emplace_back(name, detach(parameter).clone());
      set_gradient(parameter, Tensor::zeros_like(parameter));
    }
    Optimizer({.kind = "adamw", .weight_decay = 0.1}, model.parameters(), model.undecayed_parameters())
        .step(0.5);
    const NamedTensors after = model.parameters();
    int kept = 0;
    for (size_t i = 0; i < after.size(); ++i) {
      const std::string& name = after[i].first;
      CAPTURE(name);
      const bool decays = !name.ends_with("gates.log_rate") && !name.ends_with("gates.time_step");
      kept += !decays;
      CHECK(max_difference(after[i].second, mul(before[i].second, decays ? 0.95 : 1)) <
            (decays ? 1e-15 : 1e-300));
    }
    CHECK(kept == 4);
  }
}

TEST_CASE("clip_value limits the elements of scaled gradients, and keeps NaN") {
  OptimizerConfig config;
  config.kind = "sgd";
  config.options.set("momentum", 0.0);
  config.options.set("clip_value", 0.5);
  const Tensor p = set_requires_grad(Tensor::zeros({4}, DType::float64));
  set_gradient(p, Tensor::from_vector<double>({0.2, -3, 8, NAN}, {4}));
  Optimizer optimizer(config, {{"p", p}});
  optimizer.step(1, 2);
  const std::vector<double> found = p.to_vector();
  CHECK(std::vector<double>(found.begin(), found.end() - 1) == std::vector<double>{-0.4, 0.5, -0.5});
  CHECK(std::isnan(found[3]));
}

TEST_CASE(
    "swap_averaged_weights() exchanges the weights with their average, and a second call restores them") {
  OptimizerConfig config;
  config.kind = "sgd";
  config.ema = 0.5;
  const Tensor p = set_requires_grad(Tensor::from_vector<double>({1}, {1}));
  Optimizer optimizer(config, {{"p", p}});
  set_gradient(p, Tensor::from_vector<double>({1}, {1}));
  optimizer.step(0.5);
  const double weights = p.item();
  optimizer.swap_averaged_weights();
  const double decay = std::min(0.5, 2.0 / 11);
  CHECK(p.item() == doctest::Approx(decay * 1 + (1 - decay) * weights));
  optimizer.swap_averaged_weights();
  CHECK(p.item() == weights);
}

TEST_CASE("each schedule gives its learning rates") {
  const auto make_schedule = [](const char* kind, int64_t warmup_steps, int64_t steps,
                                const std::vector<std::pair<std::string, OptionValue>>& options = {}) {
    ScheduleConfig config{.kind = kind, .warmup_steps = warmup_steps};
    for (const auto& [name, value] : options) config.options.set(name, value);
    return Schedule(config, steps);
  };
  const Schedule step = make_schedule("step", 4, 30, {{"step_at", std::vector<int64_t>{10, 20}}});
  CHECK(step.factor(0) == 0.25);
  CHECK(step.factor(3) == 1);
  CHECK(step.factor(9) == 1);
  CHECK(step.factor(10) == doctest::Approx(0.1));
  CHECK(step.factor(25) == doctest::Approx(0.01));
  const Schedule rsqrt = make_schedule("rsqrt", 4, 100);
  CHECK(rsqrt.factor(1) == 0.5);
  CHECK(rsqrt.factor(3) == 1);
  CHECK(rsqrt.factor(15) == 0.5);
  const Schedule cosine = make_schedule("cosine", 0, 100, {{"final_lr_ratio", 0.2}});
  CHECK(cosine.factor(0) == 1);
  CHECK(cosine.factor(50) == doctest::Approx(0.6));
  CHECK(cosine.factor(100) == doctest::Approx(0.2));
}

TEST_CASE("the plateau schedule equals ReduceLROnPlateau of PyTorch, including min_lr") {
  // The expected values were computed by hand from the documentation of
  // torch.optim.lr_scheduler.ReduceLROnPlateau(factor=0.5, patience=n, threshold=1e-4, min_lr=0.2 lr). The
  // schedule halves the rate after more than n consecutive evaluations without an improvement.
  const std::vector<double> losses = {1.0, 1.0, 0.99995, 1.2, 0.5, 0.6, 0.5, 0.5, 0.7, 0.49, 1, 1};
  const std::vector<double> by_patience[] = {
      {1, 0.5, 0.25, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2},
      {1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2, 0.2, 0.2},
      {1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25},
  };
  for (int64_t patience = 0; patience < 3; ++patience) {
    CAPTURE(patience);
    ScheduleConfig config{.kind = "plateau"};
    config.options.set("factor", 0.5);
    config.options.set("final_lr_ratio", 0.2);
    config.options.set("patience", patience);
    Schedule plateau(config, 100);
    for (size_t i = 0; i < losses.size(); ++i) {
      CAPTURE(i);
      plateau.observe_loss(losses[i]);
      CHECK(plateau.factor(5) == by_patience[patience][i]);
    }
  }
  ScheduleConfig config{.kind = "plateau"};
  config.options.set("patience", int64_t{0});
  config.options.set("threshold", 0.0);
  Schedule strict(config, 100);
  strict.observe_loss(1);
  strict.observe_loss(0.99999);  // with threshold 0, every decrease is an improvement
  CHECK(strict.factor(5) == 1);
}
