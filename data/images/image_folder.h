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
  // Folders of the validation and test pictures. If valid_path is empty, the validation split contains the
  // fraction valid_share of the pictures in `path`. If test_path is empty, the test split contains the
  // fraction test_share of these pictures.
  std::string valid_path = {}, test_path = {};
  double valid_share = 0.05, test_share = 0.05;  // fractions of the pictures in `path`, from 0 to 1
  int64_t image_size = 32;                       // side of the images in pixels
  int64_t channels = 3;                          // 1: grey, 3: RGB
  // If true, a file that cannot be used throws DataError. If false, the file is skipped with a warning.
  bool reject_faulty_files = false;
  std::string cache_folder = {};  // folder in which decoded images are cached; empty: no cache
  int64_t limit = 0;              // maximum number of images, from the start of the split; 0: all
};

// The pictures in a folder and its subfolders. `paths` contains paths relative to the folder. `faults`
// contains a message for each entry that cannot be used: a broken link, a link to a folder that contains the
// link, or a picture whose name is not valid UTF-8.
struct PicturePathList {
  std::vector<std::string> paths;
  std::vector<std::string> faults;
};
// Lists the pictures in a folder and its subfolders. Follows symbolic links. Throws DataError if `folder` is
// not a folder.
PicturePathList list_picture_paths(const std::string& folder);

// Returns the paths of the pictures of the split "train", "valid" or "test". The pictures are sorted by a
// hash of their paths before they are divided into splits. The pictures of a subfolder are therefore
// distributed over all splits. The validation split contains the fraction `valid_share` of the pictures, and
// the test split contains the fraction `test_share`; the numbers of pictures are rounded up. Throws
// ConfigError for an unknown split.
std::vector<std::string> select_split_paths(std::vector<std::string> paths, const std::string& split,
                                            double valid_share, double test_share);

// Reads the pictures of a split. All labels are 0. Throws DataError if the folder cannot be read or the split
// has no usable picture. If options.reject_faulty_files is true, also throws DataError if a file cannot be
// used. Throws ConfigError for an unknown split.
ImageSet load_image_folder(const std::string& split, const ImageFolderOptions& options);

}  // namespace tapeformer
