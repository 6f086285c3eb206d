// The error codes that the CUDA header leaves open: it lists several, or none, for these cases. They are
// our choice, all in this one table, so that one run on a GPU corrects them (contract: "starred codes").
#pragma once
#include "cudasim/driver/cuda_api.hpp"

namespace cudasim::codes {

inline constexpr CUresult kCreateBadSize = CUDA_ERROR_INVALID_VALUE;          // rule 3
inline constexpr CUresult kCreateFabric = CUDA_ERROR_NOT_PERMITTED;           // rule 5
inline constexpr CUresult kAddressFreeMapped = CUDA_ERROR_INVALID_VALUE;      // rule 11
inline constexpr CUresult kMapOnMapped = CUDA_ERROR_INVALID_VALUE;            // rule 12
inline constexpr CUresult kExportWrongType = CUDA_ERROR_INVALID_VALUE;        // rule 20
inline constexpr CUresult kImportNotAnAllocation = CUDA_ERROR_INVALID_VALUE;  // rule 22
inline constexpr CUresult kFreeUnknown = CUDA_ERROR_INVALID_VALUE;            // rule 30
inline constexpr CUresult kIpcOtherNamespace = CUDA_ERROR_INVALID_VALUE;      // rule 33
inline constexpr CUresult kIpcBadFlags = CUDA_ERROR_INVALID_VALUE;            // rule 33
inline constexpr CUresult kIpcGone = CUDA_ERROR_INVALID_VALUE;                // rule 33: exporter freed it
inline constexpr CUresult kIpcCloseUnknown = CUDA_ERROR_INVALID_VALUE;        // rule 34
inline constexpr CUresult kExportTableFull = CUDA_ERROR_OUT_OF_MEMORY;        // rule 39
inline constexpr CUresult kUnknownPointer = CUDA_ERROR_INVALID_VALUE;   // copy to an address nobody knows
inline constexpr CUresult kDeviceLost = CUDA_ERROR_DEVICE_UNAVAILABLE;  // XID 79
inline constexpr CUresult kForkedChild = CUDA_ERROR_NOT_INITIALIZED;    // rule 37
inline constexpr CUresult kRealDevicePresent = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
inline constexpr CUresult kFolderUnusable = CUDA_ERROR_SYSTEM_NOT_READY;

}  // namespace cudasim::codes
