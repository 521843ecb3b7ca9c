/* The cards that the drivers of these tests know, and what the environment says of them. */
#include <stdlib.h>
#include <string.h>

struct card {
    const char *key;
    const char *name;
    unsigned char id; /* all sixteen bytes of its unique name */
    int bus;
    unsigned long long total, used; /* in MiB */
    int major, minor, multiprocessors, megahertz, bits;
    int integrated;
    const char *of; /* the card that a slice belongs to */
};

static const struct card CARDS[] = {
    {"4090", "NVIDIA GeForce RTX 4090", 0x10, 1, 24576, 2048, 8, 9, 128, 10501, 384, 0, 0},
    {"1g", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", 0x11, 2, 5120, 1024, 8, 0, 14, 1215, 5120, 0, "a100"},
    {"2g", "NVIDIA A100-SXM4-40GB MIG 2g.10gb", 0x12, 2, 10240, 0, 8, 0, 28, 1215, 5120, 0, "a100"},
    {"a100", "NVIDIA A100-SXM4-40GB", 0x20, 2, 40960, 1024, 8, 0, 108, 1215, 5120, 0, 0},
    {"3090", "NVIDIA GeForce RTX 3090", 0x30, 3, 24576, 300, 8, 6, 82, 9751, 384, 0, 0},
    {"gb10", "NVIDIA GB10", 0x40, 15, 124610, 0, 12, 1, 48, 0, 0, 1, 0},
    {"h0", "NVIDIA H100 80GB HBM3", 0x50, 16, 81920, 0, 9, 0, 132, 2619, 5120, 0, 0},
    {"h1", "NVIDIA H100 80GB HBM3", 0x51, 17, 81920, 0, 9, 0, 132, 2619, 5120, 0, 0},
    {"h2", "NVIDIA H100 80GB HBM3", 0x52, 18, 81920, 0, 9, 0, 132, 2619, 5120, 0, 0},
    {"h3", "NVIDIA H100 80GB HBM3", 0x53, 19, 81920, 0, 9, 0, 132, 2619, 5120, 0, 0},
    {"h4", "NVIDIA H100 80GB HBM3", 0x54, 20, 81920, 0, 9, 0, 132, 2619, 5120, 0, 0},
    {"h5", "NVIDIA H100 80GB HBM3", 0x55, 21, 81920, 0, 9, 0, 132, 2619, 5120, 0, 0},
    {"h6", "NVIDIA H100 80GB HBM3", 0x56, 22, 81920, 0, 9, 0, 132, 2619, 5120, 0, 0},
    {"h7", "NVIDIA H100 80GB HBM3", 0x57, 23, 81920, 0, 9, 0, 132, 2619, 5120, 0, 0},
};
enum { KNOWN = sizeof CARDS / sizeof *CARDS };

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

/* Whether a list such as "4090,3090" in the environment has this word. */
static int listed(const char *name, const char *word) {
    const char *text = getenv(name);
    size_t length = strlen(word);
    while (text && *text) {
        size_t part = strcspn(text, ",");
        if (part == length && !strncmp(text, word, part)) return 1;
        text += part + (text[part] == ',');
    }
    return 0;
}

/* The card at this place of a list in the environment; 0 beyond its end. */
static const struct card *card_at(const char *name, const char *otherwise, int place) {
    const char *text = getenv(name) ? getenv(name) : otherwise;
    while (*text) {
        size_t part = strcspn(text, ",");
        if (!place--) {
            for (int n = 0; n < KNOWN; n++)
                if (strlen(CARDS[n].key) == part && !strncmp(CARDS[n].key, text, part)) return &CARDS[n];
            return 0;
        }
        text += part + (text[part] == ',');
    }
    return 0;
}

static int count_of(const char *name, const char *otherwise) {
    int count = 0;
    while (card_at(name, otherwise, count)) count++;
    return count;
}

/* What the environment says this library does to the process that loads it. */
static void misbehave(const char *how) {
    if (!how) return;
    if (!strcmp(how, "crash")) *(volatile int *)0 = 1;
    if (!strcmp(how, "hang"))
        for (;;) { volatile int still = 1; (void)still; }
    if (!strcmp(how, "exit")) _Exit(7);
}
