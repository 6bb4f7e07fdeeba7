// Everything public in Gradus, in the order of its layers.
#pragma once
