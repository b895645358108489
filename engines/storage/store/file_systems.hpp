// What the type of a file system says of the files on it.
//
// NFS and SMB clients cache file data until the file is opened again. If another host writes to the
// file meanwhile, a read may return the old data. Locks need a service on the server. So the
// accelerator does not accelerate files on them: the MPI library does their I/O. A store cannot lie
// on them, because it belongs to one node. Lustre, GPFS, BeeGFS and other parallel file systems
// keep client caches coherent.
#pragma once

namespace assay::storage {

// "NFS" or "SMB" if the file is on such a file system; null otherwise.
const char* incoherent_file_system(int fd);

// Whether the file or folder is on a file system of this node.
bool is_local(int fd);

}  // namespace assay::storage
