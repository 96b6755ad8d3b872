#include "data/catalogue.h"

#include <array>

#include "core/errors.h"
#include "core/options.h"

namespace tapeformer {
namespace {

constexpr std::array<KnownFile, 4> kMnistFiles{{
    {"train-images-idx3-ubyte", 47040016, 0xE9F4D8B3},
    {"train-labels-idx1-ubyte", 60008, 0xE0CB4AD2},
    {"t10k-images-idx3-ubyte", 7840016, 0x91373BDF},
    {"t10k-labels-idx1-ubyte", 10008, 0x4AB9EFF9},
}};

constexpr std::array<KnownFile, 4> kFashionMnistFiles{{
    {"train-images-idx3-ubyte", 47040016, 0xB4F29F28},
    {"train-labels-idx1-ubyte", 60008, 0x741A4657},
    {"t10k-images-idx3-ubyte", 7840016, 0x678FE0B1},
    {"t10k-labels-idx1-ubyte", 10008, 0x80142C1F},
}};

constexpr std::array<KnownFile, 6> kCifar10Files{{
    {"data_batch_1.bin", 30730000, 0xB3220C1F},
    {"data_batch_2.bin", 30730000, 0xC439A348},
    {"data_batch_3.bin", 30730000, 0x8C6F54F0},
    {"data_batch_4.bin", 30730000, 0x6A83637E},
    {"data_batch_5.bin", 30730000, 0x2F355AFD},
    {"test_batch.bin", 30730000, 0x19777D49},
}};

constexpr std::array<KnownSet, 3> kSets{{
    {"mnist", "handwritten digits, 28 x 28 grey, 60,000 train and 10,000 test", 28, 28, 1, kMnistFiles, "",
     "download the four .gz files from https://ossci-datasets.s3.amazonaws.com/mnist/ into such a folder",
     "https://ossci-datasets.s3.amazonaws.com/mnist"},
    {"fashion-mnist", "articles of clothing, 28 x 28 grey, 60,000 train and 10,000 test", 28, 28, 1,
     kFashionMnistFiles, "/usr/share/datasets/fashion-mnist",
     "sudo apt-get install dataset-fashion-mnist (Debian and Ubuntu), or download the four .gz files from "
     "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/ into such a folder",
     "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"},
    {"cifar10", "photographs, 32 x 32 colour, 50,000 train and 10,000 test", 32, 32, 3, kCifar10Files, "",
     "in such a folder, run: curl -L https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz | tar xz "
     "--strip-components=1",
     ""},
}};

}  // namespace

std::span<const KnownSet> known_sets() {
  return kSets;
}

const KnownSet& known_set(const std::string& name) {
  std::vector<std::string> names;
  for (const KnownSet& set : kSets) {
    if (set.name == name) return set;
    names.emplace_back(set.name);
  }
  throw ConfigError(unknown_name_text(name, "a data set", names));
}

std::string unknown_name_text(const std::string& name, const std::string& kind,
                              const std::vector<std::string>& names) {
  const std::string nearest = nearest_name(name, names);
  std::string text = "\"" + name + "\" is not " + kind;
  if (!nearest.empty()) return text + "; did you mean \"" + nearest + "\"?";
  for (size_t i = 0; i < names.size(); ++i) text += (i ? ", " : "; there are ") + names[i];
  return text;
}

}  // namespace tapeformer
