/*
 * Maps a file, reads all of it once, and then the first part of it again and again: a service of whose file little is in use.
 * lab/packages.sh builds it, for the part `files` of package-test.sh.
 * usage: map-file PATH HOT_MIB
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static volatile unsigned long sum;

static void read_pages(const unsigned char *at, size_t bytes)
{
    for (size_t n = 0; n < bytes; n += 4096)
        sum += at[n];
}

int main(int argc, char **argv)
{
    struct stat found;
    int file = argc == 3 ? open(argv[1], O_RDONLY) : -1;

    if (file < 0 || fstat(file, &found) != 0) {
        fprintf(stderr, "usage: map-file PATH HOT_MIB\n");
        return 2;
    }
    size_t all = (size_t)found.st_size, hot = (size_t)atoi(argv[2]) << 20;
    unsigned char *at = mmap(NULL, all, PROT_READ, MAP_SHARED, file, 0);
    if (at == MAP_FAILED || hot > all) {
        perror("map-file: mmap");
        return 1;
    }
    read_pages(at, all);
    for (;;) {
        usleep(100 * 1000);
        read_pages(at, hot);
    }
}
