#include "data/images/image_files.h"

#include <algorithm>
#include <cstring>

#include "core/threads/threads.h"
#include "data/files/gzip.h"
#include "data/images/idx.h"
#include "data/sets/directory.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kClasses = 10;

void check_label(int64_t label, int64_t record, const fs::path& path) {
  if (label >= kClasses)
    throw DataError(concat_text(path.string(), ": label ", label, " of example ", record, ", expected 0 to ",
                                kClasses - 1));
}

class IdxImageFiles : public ImageFiles {
 public:
  explicit IdxImageFiles(const fs::path& folder)
      : train_(open(folder, "train")), test_(open(folder, "t10k")) {
    const Shape& train = train_.shape;
    const Shape& test = test_.shape;
    if (train[1] < 1 || train[2] < 1)
      throw DataError(concat_text(train_.images.string(), ": the header contains the sizes ",
                                  train.to_string(), ", expected images of at least 1 x 1"));
    if (train[1] != test[1] || train[2] != test[2])
      throw DataError(concat_text(test_.images.string(), ": images of ", test[1], " x ", test[2],
                                  ", expected ", train[1], " x ", train[2], " as in ",
                                  train_.images.filename().string()));
    height = train[1];
    width = train[2];
    channels = 1;
  }

  int64_t count_images(ImagePart part) const override { return pair(part).shape[0]; }

  LabelledImages read_images(ImagePart part, int64_t first, int64_t last) const override {
    const Pair& files = pair(part);
    const Tensor images = read_idx(files.images, 3);
    const Tensor labels = read_idx(files.labels, 1);
    const int64_t dims = height * width;
    LabelledImages out{images.view({last - first, dims}, {dims, 1}, first * dims).clone(),
                       Tensor::empty({last - first}, DType::int64)};
    for (int64_t i = first; i < last; ++i) {
      const int64_t label = labels.data<uint8_t>()[i];
      check_label(label, i, files.labels);
      out.labels.data<int64_t>()[i - first] = label;
    }
    return out;
  }

 private:
  struct Pair {
    fs::path images, labels;
    Shape shape;  // (count, height, width)
  };

  static Pair open(const fs::path& folder, const std::string& prefix) {
    Pair files{require_file(folder, prefix + "-images-idx3-ubyte"),
               require_file(folder, prefix + "-labels-idx1-ubyte"),
               {}};
    files.shape = read_idx_shape(files.images, 3);
    const int64_t labels = read_idx_shape(files.labels, 1)[0];
    if (labels != files.shape[0])
      throw DataError(concat_text(files.labels.string(), ": ", labels, " labels, expected ", files.shape[0],
                                  ", the images of ", files.images.filename().string()));
    return files;
  }
  const Pair& pair(ImagePart part) const { return part == ImagePart::train ? train_ : test_; }

  Pair train_, test_;
};

// The binary files of CIFAR-10. A record has one label byte and three planes of 32 x 32 bytes: red, green and
// blue. Every file has 10,000 records.
class CifarImageFiles : public ImageFiles {
 public:
  explicit CifarImageFiles(const fs::path& folder) {
    height = width = kSide;
    channels = 3;
    for (int i = 1; i <= kTrainFiles; ++i)
      train_.push_back(require_file(folder, concat_text("data_batch_", i, ".bin")));
    test_.push_back(require_file(folder, "test_batch.bin"));
  }

  int64_t count_images(ImagePart part) const override {
    return static_cast<int64_t>(files(part).size()) * kRecordsPerFile;
  }

  LabelledImages read_images(ImagePart part, int64_t first, int64_t last) const override {
    LabelledImages out{Tensor::empty({last - first, 3 * kPlane}, DType::uint8),
                       Tensor::empty({last - first}, DType::int64)};
    for (size_t file = 0; file < files(part).size(); ++file) {
      const int64_t start = static_cast<int64_t>(file) * kRecordsPerFile;
      const int64_t begin = std::max(first, start);
      const int64_t end = std::min(last, start + kRecordsPerFile);
      if (begin < end) read_file(files(part)[file], begin - start, end - start, begin - first, out);
    }
    return out;
  }

 private:
  static constexpr int64_t kSide = 32;
  static constexpr int64_t kPlane = kSide * kSide;
  static constexpr int64_t kRecordBytes = 1 + 3 * kPlane;
  static constexpr int64_t kRecordsPerFile = 10000;
  static constexpr int kTrainFiles = 5;

  const std::vector<fs::path>& files(ImagePart part) const {
    return part == ImagePart::train ? train_ : test_;
  }

  // Reads the records [begin, end) of a file into the rows of `out`, starting at row `row`.
  static void read_file(const fs::path& path, int64_t begin, int64_t end, int64_t row,
                        const LabelledImages& out) {
    const int64_t expected = kRecordsPerFile * kRecordBytes;
    const Bytes bytes = read_unpacked(path, expected);
    if (static_cast<int64_t>(bytes.size()) != expected)
      throw DataError(concat_text(path.string(), ": expected ", expected, " bytes (", kRecordsPerFile,
                                  " records of ", kRecordBytes, "), found ", bytes.size()));
    const uint8_t* records = bytes.data() + begin * kRecordBytes;
    int64_t* labels = out.labels.data<int64_t>() + row;
    for (int64_t i = 0; i < end - begin; ++i) {
      labels[i] = records[i * kRecordBytes];
      check_label(labels[i], begin + i, path);
    }
    uint8_t* pixels = out.pixels.data<uint8_t>() + row * 3 * kPlane;
    parallel_for(end - begin, 64, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) interleave(records + i * kRecordBytes + 1, pixels + i * 3 * kPlane);
    });
  }

  static void interleave(const uint8_t* planes, uint8_t* pixels) {
    for (int64_t i = 0; i < kPlane; ++i)
      for (int64_t channel = 0; channel < 3; ++channel)
        pixels[3 * i + channel] = planes[channel * kPlane + i];
  }

  std::vector<fs::path> train_, test_;
};

}  // namespace

std::unique_ptr<const ImageFiles> open_image_files(const CatalogueEntry& set, const fs::path& folder) {
  if (set.name == "cifar10") return std::make_unique<CifarImageFiles>(folder);
  return std::make_unique<IdxImageFiles>(folder);
}

}  // namespace tapeformer
