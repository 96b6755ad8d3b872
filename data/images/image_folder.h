// Data sets of the user's own pictures. The PNG and JPEG files in a folder and its subfolders are converted
// to square images of one size (data/images/picture.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/images/images.h"

namespace tapeformer {

struct ImageFolderOptions {
  std::string path = {};  // folder of the pictures
  // Folders of the validation and test pictures. If a path is empty, the split is a share of the pictures in
  // `path`.
  std::string valid_path = {}, test_path = {};
  double valid_share = 0, test_share = 0;  // shares of the pictures, from 0 to 1
  int64_t size = 32;                       // side of the images in pixels
  int64_t channels = 3;                    // 1: grey, 3: RGB
  bool refuse_faulty = false;  // throw for a file that cannot be used; false: leave it out with a warning
  std::string cache = {};      // folder in which decoded images are cached; empty: no cache
  int64_t limit = 0;           // maximum number of images, from the start of the split; 0: all
};

// The pictures below a folder, as paths relative to the folder, and the faults of other entries. Faults are
// broken links, links to a folder that contains the link, and names that are not valid UTF-8.
struct PictureList {
  std::vector<std::string> pictures;
  std::vector<std::string> faults;
};
// Lists the pictures below a folder. Follows symbolic links. Throws DataError if `folder` is not a folder.
PictureList list_pictures(const std::string& folder);

// Returns the pictures of a split of a folder: "train", "valid" or "test". The hashes of the paths determine
// the order of the pictures and their split, so every split mixes pictures of all subfolders. The test split
// has the first test_share of the pictures, rounded up; the validation split has the next valid_share,
// rounded up. Throws ConfigError for an unknown split.
std::vector<std::string> select_split_pictures(std::vector<std::string> pictures, const std::string& split,
                                               double valid_share, double test_share);

// Reads a split. Decoding uses the thread pool, so the function must be called from the main thread. All
// labels are 0. Throws DataError if the folder cannot be read or has no usable picture. If `refuse_faulty` is
// true, also throws DataError for files with faults. Throws ConfigError for an unknown split.
ImageSet load_image_folder(const std::string& split, const ImageFolderOptions& options);

}  // namespace tapeformer
