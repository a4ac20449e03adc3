/* Compares the conversions of this processor with those in plain C: of all floats of 16 bits, and of every `step`th of 32. */
#include "../../../plugins/native/csrc/kernels.c"
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 16 };

static uint16_t halves[COUNT], plain[COUNT], own[COUNT];
static float singles[COUNT], plain_singles[COUNT], own_singles[COUNT];

static int differ(const char *what, const void *first, const void *second, size_t nbytes)
{
    if (memcmp(first, second, nbytes) == 0)
        return 0;
    printf("%s differ\n", what);
    return 1;
}

int main(int argc, char **argv)
{
    uint64_t step = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int wrong = 0;
    for (int i = 0; i < COUNT; i++)
        halves[i] = (uint16_t)i;
    kernels_widen_half(plain_singles, halves, COUNT);
    kernels_widen_halves(own_singles, halves, COUNT);
    wrong += differ("floats of 16 bits", plain_singles, own_singles, sizeof plain_singles);
    kernels_narrow_half(plain, plain_singles, COUNT);
    for (int i = 0; i < COUNT; i++)
        wrong += plain[i] != ((i & 0x7fff) > 0x7c00 ? i | 0x200 : i);
    for (uint64_t first = 0; first < (uint64_t)1 << 32 && wrong == 0; first += COUNT * step) {
        for (uint64_t i = 0; i < COUNT; i++) {
            uint32_t bits = (uint32_t)(first + i * step);
            memcpy(&singles[i], &bits, sizeof bits);
        }
        kernels_narrow_half(plain, singles, COUNT);
        kernels_narrow_halves(own, singles, COUNT);
        wrong += differ("floats of 32 bits", plain, own, sizeof plain);
    }
    printf("%s: %d wrong\n", kernels_converts() ? "the processor converts" : "plain C converts", wrong);
    return wrong != 0;
}
