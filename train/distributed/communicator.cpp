#include "train/distributed/communicator.h"

namespace tapeformer {
namespace {

class SingleProcess final : public Communicator {
 public:
  SingleProcess() : Communicator(0, 1) {}
  void start_all_reduce(const Tensor&) override {}
  void wait() override {}
  void broadcast(const Tensor&) override {}
  void barrier() override {}
};

}  // namespace

const std::shared_ptr<Communicator>& get_single_process_communicator() {
  static const auto* const communicator =
      new std::shared_ptr<Communicator>(std::make_shared<SingleProcess>());
  return *communicator;
}

}  // namespace tapeformer
