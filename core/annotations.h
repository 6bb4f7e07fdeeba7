// What marks a function as callable from device code too.
#pragma once

#ifdef __CUDACC__
#define GRADUS_FN __host__ __device__
#else
#define GRADUS_FN
#endif
